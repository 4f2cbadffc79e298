"""What carries a load on one product for ``size``, and by which measure do products compare?"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf
from typing import Final

from shardwright.cli.named_gpus import NamedGpus
from shardwright.hardware.gpus import GpuPrice, relative_price
from shardwright.planning.comparison import Comparison
from shardwright.planning.report import NoPlan, Plan, Report

COST_ERROR: Final = 0.10
"""Share by which costs differ that predictions do not tell apart. Basis: the median error of
throughput (docs/benchmarks/accuracy.md), to which the number of GPUs is proportional.
"""


class Counted(StrEnum):
    """The measure by which products are compared."""

    STATED = "Stated"  #: prices in the settings
    RELATIVE = "Relative"  #: prices relative to an H100
    GPUS = "Gpus"  #: nothing to compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The findings for a product; ``gpu_hour_price`` is None if the settings state none,
    ``comparison`` if no degree is pinned.
    """

    named: NamedGpus
    report: Report
    gpu_hour_price: float | None
    comparison: Comparison | None = None

    @property
    def outcome(self) -> Plan | NoPlan:
        """Return what ``plan`` says of the product."""
        return self.report.outcome

    @property
    def plan(self) -> Plan | None:
        """Return the plan, None if it does not carry the load."""
        carries = isinstance(self.outcome, Plan) and self.outcome.carries_load
        return self.outcome if isinstance(self.outcome, Plan) and carries else None

    @property
    def gpus(self) -> int:
        """Return the GPUs that carry the load, 0 if no number does."""
        return self.plan.layout.gpus if self.plan else 0

    @property
    def nodes(self) -> int:
        """Return the nodes that these GPUs stand in."""
        return len({name for group in self.plan.groups for name in group}) if self.plan else 0

    @property
    def bought(self) -> int:
        """Return all GPUs of these nodes."""
        return self.nodes * self.named.gpus_per_node

    @property
    def sliced(self) -> bool:
        """Return whether these are slices of GPUs (MIG)."""
        return self.named.gpu.whole is not None

    @property
    def relative_price(self) -> GpuPrice:
        """Return the price of a GPU per hour, in hours of an H100."""
        return relative_price(self.named.gpu)

    def price(self, by: Counted, gpus: int) -> float:
        """Return what so many GPUs cost an hour by a measure; slices, which are sold whole, as all
        on their GPUs.
        """
        each = {Counted.STATED: self.gpu_hour_price, Counted.RELATIVE: self.relative_price.per_hour}
        slices = self.named.gpu.slices
        return ceil(gpus / slices) * slices * (each.get(by) or 1.0)

    def counts(self, by: Counted) -> float:
        """Return the cost of the GPUs that carry the load by a measure; infinite if none do."""
        return self.price(by, self.gpus) if self.plan else inf


def counted_by(found: Sequence[Sized]) -> Counted:
    """Return the measure that compares the products that carry the load: stated prices if all have
    one, as in ``plan``.
    """
    carrying = [sized for sized in found if sized.plan]
    if carrying and all(sized.gpu_hour_price is not None for sized in carrying):
        return Counted.STATED
    return Counted.RELATIVE if carrying[1:] else Counted.GPUS


def equals(found: Sequence[Sized], by: Counted) -> tuple[Sized, ...]:
    """Return the products that cost as much as the cheapest, which is first, within the error."""
    first, *others = found
    if by is Counted.GPUS:
        return ()
    most = first.counts(by) * (1 + COST_ERROR)
    return tuple(sized for sized in others if sized.plan and sized.counts(by) <= most)
