"""Every layout worth looking at, on every pool; in a fixed order, one at a time, without a price."""

from collections.abc import Iterator
from typing import Final

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import Candidate, Layout, SearchSpace
from shardwright.layouts.placement import Shelf
from shardwright.modelspec.spec import ModelSpec

_NODE_COUNTS: Final = (2, 3, 4, 6, 8, 9, 12, 16, 18)
"""Nodes of one replica that are tried beyond one (18 trays are a whole NVL72 rack); assumed to be enough."""

_MOST_STAGES: Final = 16
"""Pipeline stages that are tried without a pin; assumed: deeper pipelines are filled by no load that fits them."""

_LOOK_BEYOND_NODES: Final = 4
"""Nodes of one replica that pins may span, and that are tried on any pool to say "one node short"."""


def enumerate_candidates(
    model: ModelSpec, inventory: Inventory, space: SearchSpace, *, beyond: bool = False
) -> Iterator[Candidate]:
    """Yield each layout on each pool, pools by name, placed on what is free.

    Degrees that do not divide anything are among them, so that a check can say why not. A group that
    spans nodes takes whole nodes unless a degree is pinned. ``beyond`` goes on to a few nodes more than
    a pool has, so that what is missing can be said.
    """
    for pool in sorted(inventory.pools, key=lambda pool: pool.name):
        shelf = Shelf(pool)
        most = max(len(pool.nodes), _LOOK_BEYOND_NODES if beyond else 1)
        for layout in layouts(model, pool, space, most):
            yield Candidate(layout=layout, pool=pool, placement=shelf.place(layout))


def layouts(model: ModelSpec, pool: Pool, space: SearchSpace, most_nodes: int) -> Iterator[Layout]:
    """Yield the layouts of a pool over up to ``most_nodes`` nodes a replica, in ascending order of degrees."""
    for tensor, pipeline in sorted(set(_degrees(model, pool, space, most_nodes))):
        for expert in _expert_degrees(model, tensor, space.expert):
            yield Layout(tensor=tensor, pipeline=pipeline, expert=expert, replicas=space.replicas)


def _degrees(model: ModelSpec, pool: Pool, space: SearchSpace, most_nodes: int) -> Iterator[tuple[int, int]]:
    heads = max((layer.attention.heads for layer in model.layers if layer.attention), default=1)
    for tensor, pipeline in (*_in_node(pool), *_whole_nodes(pool, most_nodes), *_pinned(pool, space)):
        wanted = space.tensor in (None, tensor) and space.pipeline in (None, pipeline)
        sensible = tensor <= heads and pipeline <= min(_MOST_STAGES, len(model.layers))
        if wanted and (sensible or tensor == space.tensor or pipeline == space.pipeline):
            yield tensor, pipeline


def _in_node(pool: Pool) -> Iterator[tuple[int, int]]:
    for tensor in range(1, pool.gpus_per_node + 1):
        for pipeline in range(1, pool.gpus_per_node // tensor + 1):
            yield tensor, pipeline


def _whole_nodes(pool: Pool, most_nodes: int) -> Iterator[tuple[int, int]]:
    """Yield degrees that fill several nodes, with tensor groups inside nodes or over whole ones."""
    for nodes in (count for count in _NODE_COUNTS if count <= most_nodes):
        inside = (tensor for tensor in range(1, pool.gpus_per_node) if pool.gpus_per_node % tensor == 0)
        over = (pool.gpus_per_node * count for count in range(1, nodes + 1) if nodes % count == 0)
        for tensor in (*inside, *over):
            yield tensor, nodes * pool.gpus_per_node // tensor


def _pinned(pool: Pool, space: SearchSpace) -> Iterator[tuple[int, int]]:
    """Yield what pins allow beyond whole nodes: one pin leaves the other degree free up to a few nodes."""
    if space.tensor is None and space.pipeline is None:
        return
    most = _LOOK_BEYOND_NODES * pool.gpus_per_node
    tensors = (space.tensor,) if space.tensor else range(1, most + 1)
    for tensor in tensors:
        for pipeline in (space.pipeline,) if space.pipeline else range(1, max(1, most // tensor) + 1):
            yield tensor, pipeline


def _expert_degrees(model: ModelSpec, tensor: int, pin: int | None) -> tuple[int, ...]:
    """Return 1 (experts sliced by tensor) and, for experts on several ranks, tensor (whole experts)."""
    possible = (1, tensor) if model.experts and tensor > 1 else (1,)
    return tuple(degree for degree in possible if pin in (None, degree))
