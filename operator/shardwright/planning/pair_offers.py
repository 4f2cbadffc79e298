"""What might be a pair: groups of each kind, so many of them, at a speed and a cost."""

import math
from dataclasses import dataclass, replace

from shardwright.costs.estimates import Performance
from shardwright.costs.pairs import PairSpeed, Unit
from shardwright.costs.workload import Phase
from shardwright.layouts.layout import Candidate, Layout, Placement
from shardwright.modelspec.model_spec import GroupedAttention, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOffer:
    """A pair that might be: its groups, speed, cost, and how far the worst limit is missed."""

    unit: Unit
    units: int
    speed: PairSpeed
    cost: float
    missed: float

    @property
    def worth(self) -> tuple[bool, float, float, int]:
        """Return the key of the best: limits first, then tokens a second for the cost."""
        in_time = self.missed <= 0
        tokens = self.speed.performance.output_tokens_per_second / self.cost
        return in_time, tokens if in_time else -self.missed, tokens, -gpus_of_unit(self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedGroup:
    """One whole group, as it was priced: its times say which would do for one phase alone."""

    one: Candidate
    speed: Performance
    cost: float

    def worth(self, phase: Phase) -> float:
        """Return prompts or tokens a second for the cost, as if there were nothing else."""
        if phase is Phase.PREFILL:
            alone = sum(each.seconds for each in self.speed.prefill_shares if each.name != "Queue")
            return self.one.layout.attention_data / alone / self.cost
        step = sum(each.seconds for each in self.speed.decode_shares if each.name != "Prefill")
        return self.speed.running_requests / step / self.cost


def counts_near(needed: float) -> tuple[int, ...]:
    """Return the least number that does, and the one before: time is not spent on one half alone.

    >>> counts_near(2.3), counts_near(0.2)
    ((2, 3), (1,))
    """
    enough = max(1, math.ceil(needed))
    return (enough - 1, enough) if enough > 1 else (enough,)


def gpus_of_unit(unit: Unit) -> int:
    """Return the GPUs of all groups."""
    prefill, decode = unit.prefill.layout, unit.decode.layout
    return (
        unit.prefill_groups * prefill.gpus_per_replica
        + unit.decode_groups * decode.gpus_per_replica
    )


def unit_within(unit: Unit, most: int) -> Unit | None:
    """Return about the same share of groups of each kind on so many GPUs, None if there is none."""
    share = most / gpus_of_unit(unit)
    fewer = replace(
        unit,
        prefill_groups=max(1, math.floor(unit.prefill_groups * share)),
        decode_groups=max(1, math.floor(unit.decode_groups * share)),
    )
    return fewer if gpus_of_unit(fewer) <= most else None


def taken_by(placement: Placement) -> dict[str, int]:
    """Return the GPUs that a placement takes of each node."""
    taken: dict[str, int] = {}
    for group in placement.groups:
        for name in group:
            taken[name] = taken.get(name, 0) + placement.gpus_per_node
    return taken


def in_groups(layout: Layout, groups: int) -> Layout:
    """Return a layout in so many groups."""
    return replace(layout, replicas=groups)


def can_pair(prefill: Layout, decode: Layout, kv_heads: int | None) -> bool:
    """Return whether decode groups can read the K/V of prefill groups; blocks are alike, as both
    take like options.

    Args:
        prefill: The degrees of a group that computes prompts.
        decode: Those of a group that answers.
        kv_heads: The K/V heads of the layer that has the fewest (None: every rank holds one vector
            for all heads).

    >>> can_pair(Layout(tensor=2), Layout(tensor=4), 8)
    True
    >>> can_pair(Layout(tensor=4), Layout(tensor=2), 8)
    False
    """
    if prefill.context != decode.context or max(prefill.pipeline, decode.pipeline) > 1:
        return False
    if kv_heads is None or prefill.tensor == decode.tensor:
        return True
    # Unlike degrees go only where no K/V head is held twice.
    return decode.tensor % prefill.tensor == 0 and decode.tensor <= kv_heads


def fewest_heads(model: ModelSpec) -> int | None:
    """Return the K/V heads of the layer that has the fewest, None if no layer has any."""
    heads = [
        layer.attention.kv_heads
        for layer in model.layers
        if isinstance(layer.attention, GroupedAttention)
    ]
    return min(heads, default=None)
