"""Which layouts are worth pricing, on which pools? In a fixed order, one at a time."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import (
    MOST_REPLICAS,
    Candidate,
    EngineTraits,
    Layout,
    Placement,
    SearchSpace,
    Withheld,
)
from shardwright.layouts.placing import Over, Shelf, Spread
from shardwright.layouts.stages import balanced_partition
from shardwright.modelspec.model_spec import GroupedAttention, LatentAttention, Layer, ModelSpec

_NODE_COUNTS: Final = (2, 3, 4, 6, 8, 9, 12, 16, 18)
"""Nodes of one replica that are tried beyond one (18 trays are a whole NVL72 rack); assumed to be
enough.
"""

_MOST_STAGES: Final = 16
"""Pipeline stages that are tried without a pin; assumed: deeper pipelines are filled by no load
that fits them.
"""

_LOOK_BEYOND_NODES: Final = 4
"""Nodes of one replica that pins may span, and that are tried on any pool to say "one node short".
"""

_MOST_CONTEXT: Final = 16
"""Decode-context degree that is tried at most without a pin; assumed: beyond it a rank holds little
K/V anyway.
"""

Degrees = tuple[int, int, int]
"""Tensor, pipeline and attention-data degree."""

Barred = Callable[[Pool, Layout], Withheld]
"""The GPUs of a pool whose nodes lack something that pods of a layout need beside them."""


Numbers = Callable[[Candidate, Callable[[], int]], Iterable[int]]
"""The numbers of replicas of a candidate that are worth pricing; called, the second says how many
have room, which costs placing them.
"""


def none_barred(_pool: Pool, _layout: Layout) -> Withheld:
    """Return that pods need nothing beside GPUs that a node may lack."""
    return frozenset()


def all_of_them(_one: Candidate, most: Callable[[], int]) -> tuple[int]:
    """Return that there are to be as many replicas as have room."""
    return (most(),)


def withheld_from(pool: Pool, layout: Layout, reasons: Iterable[Barred]) -> Withheld:
    """Return the GPUs that any of the reasons withholds from a layout's pods."""
    return frozenset[tuple[str, int]]().union(*(barred(pool, layout) for barred in reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """How far candidates reach: to no GPU ``withheld`` from a layout by one of several reasons;
    ``beyond`` counts a few missing nodes, too. ``numbers`` says how many replicas, if that is open:
    ``most`` at most.
    """

    withheld: tuple[Barred, ...] = ()
    beyond: bool = False
    numbers: Numbers = all_of_them
    most: int = MOST_REPLICAS


ALL_THERE_IS: Final = SearchScope()


def enumerate_candidates(
    model: ModelSpec,
    inventory: Inventory,
    space: SearchSpace,
    traits: EngineTraits,
    scope: SearchScope = ALL_THERE_IS,
) -> Iterator[Candidate]:
    """Return each layout on each pool, pools by name, placed on free GPUs.

    Degrees that divide nothing are among them, so that a check can say why not. A group that spans
    nodes takes whole nodes of one pool unless a degree is pinned; those inside nodes have all nodes
    of a family.
    """
    cuts: dict[tuple[int, int, bool], tuple[Layout, ...]] = {}
    joined = inventory.joined
    families = {pool.family for pool in joined}
    for pool in sorted((*inventory.pools, *joined), key=lambda pool: pool.name):
        shelves = _Shelves(pool, Over.of(space))
        within = replace(space, max_gpus=space.most_gpus(pool.resource))
        # Most questions have an answer inside the pool, and larger layouts would cost as much
        # again.
        most = min(
            max(len(pool.nodes), _LOOK_BEYOND_NODES if scope.beyond else 1), _NODE_COUNTS[-1]
        )
        inside = {True, False} if pool.family not in families else {pool.only_inside_nodes}
        key = (pool.gpus_per_node, most, bool(pool.gpu.mig_profile))
        cuts[key] = cuts.get(key) or tuple(layouts(model, pool, space, traits, most))
        # Busy GPUs show as missing nodes.
        for layout in cuts[key]:
            if (Spread.of(layout, pool.gpus_per_node).nodes == 1) not in inside:
                continue
            without = withheld_from(pool, layout, scope.withheld)
            place = shelves.without(without).place
            first = Candidate(layout=layout, pool=pool, placement=place(layout), withheld=without)
            for number in _numbers(first, place, within, scope):
                sized = replace(layout, replicas=number)
                yield replace(first, layout=sized, placement=place(sized))


def _numbers(
    one: Candidate, place: Callable[[Layout], Placement], space: SearchSpace, scope: SearchScope
) -> Iterable[int]:
    """Return the numbers of replicas in which a layout is worth pricing."""
    if space.replicas is not None and not space.fill:
        return (space.replicas,)
    most = partial(_most, one.layout, place, space, scope.most)
    return all_of_them(one, most) if space.fill else scope.numbers(one, most)


class _Shelves:
    def __init__(self, pool: Pool, over: Over | None) -> None:
        self._pool, self._over = pool, over
        self._made: dict[Withheld, Shelf] = {}

    def without(self, withheld: Withheld) -> Shelf:
        if withheld not in self._made:
            # Of two reasons to withhold GPUs of a node the larger one counts.
            left = self._pool.without(dict(sorted(withheld)))
            self._made[withheld] = Shelf(left, over=self._over)
        return self._made[withheld]


def layouts(
    model: ModelSpec, pool: Pool, space: SearchSpace, traits: EngineTraits, most_nodes: int
) -> Iterator[Layout]:
    """Return the layouts of a pool over up to ``most_nodes`` nodes a replica, in ascending order of
    degrees.
    """
    # Pins and whole nodes name the same degrees twice, and the order must not depend on hashes.
    for tensor, pipeline, data in sorted(set(_degrees(model, pool, space, most_nodes))):
        for expert in _expert_degrees(model, tensor * data, space.expert, traits, beside=data > 1):
            layout = Layout(tensor=tensor, pipeline=pipeline, expert=expert, attention_data=data)
            yield from _variants(model, layout, space, traits)


def _variants(
    model: ModelSpec, layout: Layout, space: SearchSpace, traits: EngineTraits
) -> Iterator[Layout]:
    """Both at once, and shared K/V beside replicas of the attention, come only by pins."""
    partitions = _partitions(model, layout.pipeline, space, traits)
    pin = 1 if space.context is None and layout.attention_data > 1 else space.context
    for context in _context_degrees(model, layout.tensor, pin):
        for partition in partitions if context == 1 else partitions[:1]:
            yield replace(layout, context=context, partition=partition)


def _degrees(
    model: ModelSpec, pool: Pool, space: SearchSpace, most_nodes: int
) -> Iterator[Degrees]:
    heads = max((layer.attention.heads for layer in model.layers if layer.attention), default=1)
    for tensor, groups in (*_in_node(pool), *_whole_nodes(pool, most_nodes), *_pinned(pool, space)):
        even = (
            bool(model.experts)
            and max(tensor * groups, pool.gpus_per_node) % min(tensor * groups, pool.gpus_per_node)
            == 0
        )
        for pipeline, data in _split_groups(groups, space.attention_data, whole=even):
            wanted = space.tensor in (None, tensor) and space.pipeline in (None, pipeline)
            # Beyond the heads a rank has no attention to compute; a pin may ask for it, so a check
            # can say why not.
            sensible = tensor <= heads and pipeline <= min(_MOST_STAGES, len(model.layers))
            if wanted and (sensible or tensor == space.tensor or pipeline == space.pipeline):
                yield tensor, pipeline, data


def _split_groups(groups: int, pin: int | None, *, whole: bool) -> Iterator[tuple[int, int]]:
    """Yield the roles of tensor groups: stages, or replicas of the attention; both only by a pin.

    ``whole``: there are experts, and the groups fill a node, several, or an even share of one.
    """
    if pin is not None:
        if groups % pin == 0:
            yield groups // pin, pin
        return
    yield groups, 1
    if whole and groups > 1:
        # Without experts, replicas of the attention are replicas of the model.
        yield 1, groups


def _in_node(pool: Pool) -> Iterator[tuple[int, int]]:
    """Yield the ranks of a tensor group and the number of groups in a node; nothing joins MIG
    slices, so one.
    """
    if pool.gpu.mig_profile:
        yield 1, 1
        return
    # Every number, not powers of two: 3 or 6 ranks fit some models, and the checks judge
    # divisibility.
    for tensor in range(1, pool.gpus_per_node + 1):
        for groups in range(1, pool.gpus_per_node // tensor + 1):
            yield tensor, groups


def _whole_nodes(pool: Pool, most_nodes: int) -> Iterator[tuple[int, int]]:
    if pool.gpu.mig_profile:
        return
    for nodes in (count for count in _NODE_COUNTS if count <= most_nodes):
        inside = (
            tensor for tensor in range(1, pool.gpus_per_node) if pool.gpus_per_node % tensor == 0
        )
        over = (pool.gpus_per_node * count for count in range(1, nodes + 1) if nodes % count == 0)
        for tensor in (*inside, *over):
            yield tensor, nodes * pool.gpus_per_node // tensor


def _pinned(pool: Pool, space: SearchSpace) -> Iterator[tuple[int, int]]:
    """Yield the degrees that pins allow beyond whole nodes: one pin leaves the other free up to a
    few nodes.
    """
    if space.tensor is None and space.pipeline is None:
        return
    most = _LOOK_BEYOND_NODES * pool.gpus_per_node
    data = space.attention_data or 1
    tensors = (space.tensor,) if space.tensor else range(1, most + 1)
    for tensor in tensors:
        for pipeline in (
            (space.pipeline,) if space.pipeline else range(1, max(1, most // tensor // data) + 1)
        ):
            yield tensor, pipeline * data


def _expert_degrees(
    model: ModelSpec, ranks: int, pin: int | None, traits: EngineTraits, *, beside: bool
) -> tuple[int, ...]:
    """Return 1 (experts sliced over all ranks) and, on several ranks, all of them (whole experts).

    If an engine has both at once, also the degrees between: experts are dealt to sets of ranks that
    slice them. ``beside`` attention replicas experts are whole, unless a pin says otherwise.
    """
    if model.stated:
        return (pin,) if pin in (1, ranks) else (1,) if pin is None else ()
    if pin is not None:
        sets = traits.cuts.mixes_expert_cuts and ranks % pin == 0
        return (pin,) if pin == 1 or (model.experts and (pin == ranks or sets)) else ()
    if not model.experts or ranks == 1:
        return (1,)
    if beside:
        return (ranks,)
    between = (
        (degree for degree in range(2, ranks) if ranks % degree == 0)
        if traits.cuts.mixes_expert_cuts
        else ()
    )
    return (1, *between, ranks)


def _context_degrees(model: ModelSpec, tensor: int, pin: int | None) -> tuple[int, ...]:
    """Return 1 and the degree at which tensor ranks that hold the same K/V heads share all of them.

    Source: vLLM 0.32 ``config/model.py:verify_with_parallel_config``.
    """
    if pin is not None:
        return (pin,)
    copies = min((_copies(layer, tensor) for layer in _kinds(model)), default=1)
    # _MOST_CONTEXT is a power of two, so this is the largest one that divides the copies.
    return (1, math.gcd(copies, _MOST_CONTEXT)) if copies % 2 == 0 else (1,)


@lru_cache(maxsize=64)
def _kinds(model: ModelSpec) -> frozenset[Layer]:
    return frozenset(model.layers)


def _copies(layer: Layer, tensor: int) -> int:
    """Return how many tensor ranks hold the same K/V of a layer, 1 if they cannot share it."""
    attention = layer.attention
    if isinstance(attention, LatentAttention) and attention.window is None:
        return tensor
    if (
        not isinstance(attention, GroupedAttention)
        or attention.window is not None
        or tensor % attention.kv_heads
    ):
        return 1
    copies = tensor // attention.kv_heads
    return copies if copies and (attention.heads // attention.kv_heads) % copies == 0 else 1


def _partitions(
    model: ModelSpec, pipeline: int, space: SearchSpace, traits: EngineTraits
) -> tuple[tuple[int, ...], ...]:
    if space.partition:
        return (space.partition,) if len(space.partition) == pipeline else ()
    balanced = balanced_partition(model, pipeline, traits.cuts.remainder)
    return ((), balanced) if balanced else ((),)


def _most(
    layout: Layout, place: Callable[[Layout], Placement], space: SearchSpace, most: int
) -> int:
    """At least one replica, which may not fit: the checks then say by how much."""
    most = most if space.replicas is None else space.replicas
    within = space.max_gpus // layout.gpus_per_replica if space.max_gpus else most
    wanted = replace(layout, replicas=max(1, min(most, within)))
    groups = place(wanted).groups
    return max(1, _within_nodes(groups, space))


def _within_nodes(groups: tuple[tuple[str, ...], ...], space: SearchSpace) -> int:
    if space.max_nodes is None:
        return len(groups)
    taken = set(space.held_nodes)
    for index, group in enumerate(groups):
        taken.update(group)
        if len(taken) > space.max_nodes:
            return index
    return len(groups)
