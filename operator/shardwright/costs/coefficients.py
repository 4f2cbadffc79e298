"""Which numbers of the cost model does no data sheet state? One set per engine and era of releases.

They are data (``coefficients.json``), written by ``benchmarks/fit.py`` from published measurements.
None is keyed by a model, a GPU or a version: an era is all that was released up to a date.
docs/benchmarks/accuracy.md has the errors.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any, Final

BAND_LEVEL: Final = 0.8
"""Share of measurements that the band shall hold, by definition."""

BAND_MODELLED: Final = 0.45
"""Half width where public measurements are missing: several nodes, NVL72, uneven stages, context
parallelism. Basis: assumed.
"""


ENOUGH_ROWS: Final = 20
"""Published rows of a sort of model, a generation of GPU or a storage format below which it does
not count as measured. Basis: assumed.
"""


FARTHEST: Final = 2
"""Facets without a measurement beyond which bands grow no further: too few rows tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The factors of a predicted throughput for the ends of its 80% band, and their basis."""

    low: float
    high: float
    basis: str  # fitted | modelled


_MODELLED: Final = Band(low=1 - BAND_MODELLED, high=1 + BAND_MODELLED, basis="modelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The share of the hardware that an engine reaches, and its own additions.

    Those without a default are fitted, source: benchmarks/fit.py. Of every engine:
    ``compute_efficiency`` is the share that it leaves of what products reach, ``kv_efficiency`` of
    the memory bandwidth while attention reads K/V. ``product_seconds`` is the time to start a
    product, with the kernels around it, per matrix and step; ``launch_seconds`` what the host takes
    for it in a step with prompts, which no captured graph has. ``step_seconds`` is per step,
    ``sequence_seconds`` per running request and step. To the first token add ``answer_steps``
    (decode steps until the answer is on its way), ``request_seconds`` per request,
    ``admission_seconds`` per other running request and ``bunching``, the share of their prompts
    that a prompt waits for: requests of like lengths end together. ``widening`` is how many times
    longer a product takes if the GPU has no unit for the stored format.

    Of all engines alike, as they call like kernels: ``dense`` and ``experts`` are the shares of a
    large product's rate that dense products and the grouped ones of experts reach, by generation of
    GPU and format (empty: any other). ``thin_columns`` is the width of an expert's slice that takes
    twice its time, ``expert_imbalance`` the work of the busiest rank beyond the mean, for each
    doubling of the groups that experts are dealt to, ``expert_evenness`` how alike experts are
    wanted, the shape of a beta distribution (infinite: all alike), ``four_bit_bytes_per_second``
    what the kernels of dense weights that a unit multiplies in four bits take in at most.
    """

    compute_efficiency: float
    kv_efficiency: float
    product_seconds: float
    step_seconds: float
    sequence_seconds: float
    answer_steps: float
    request_seconds: float
    admission_seconds: float
    bunching: float
    widening: float
    thin_columns: float
    launch_seconds: float
    expert_imbalance: float
    expert_evenness: float
    four_bit_bytes_per_second: float
    dense: Mapping[str, float] = field(hash=False)
    experts: Mapping[str, float] = field(hash=False)

    memory_efficiency: float = 0.92
    """Share of the memory bandwidth while weights are read. Basis: assumed, what streaming reads
    reach (0.90 to 0.94).
    """
    saturation_tokens: float = 64.0
    """Tokens at which a matrix product reaches half its rate. Basis: assumed, half a tile of 128
    rows.
    """
    attention_efficiency: float = 0.42
    """Share of a matrix product's rate in the scores of attention. Basis: assumed; fits where it
    was free gave 0.40 to 0.58.
    """
    activation_copies: float = 18.0
    """Vectors of the hidden size that a layer moves per token beside its products: norms,
    residuals, rotary embedding, gating. Basis: assumed, counted (9 reads, 9 writes); 10 and 26 fit
    no better.
    """
    collective_seconds: float = 1.5e-6
    """What ranks wait for each other at a collective, seconds. Basis: assumed; fits where it was
    free gave 1 to 6 us.
    """
    expert_padding: float = 0.25
    """Rows that an expert computes for nothing, as a share of ``saturation_tokens``. Basis:
    assumed, a tile of 16 rows.
    """

    def dense_share(self, product: str) -> float:
        """Return the share of the unit's rate that large dense products reach."""
        found = self.dense.get(product, self.dense[""])
        return min(1.0, self.compute_efficiency * found)

    def expert_share(self, product: str) -> float:
        """Return the share of the unit's rate that the grouped products of experts reach."""
        found = self.experts.get(product, self.experts[""])
        return min(1.0, self.compute_efficiency * found)


NAMES: Final = tuple(each.name for each in fields(Coefficients) if each.type is float)
"""The names of all coefficients that are one number."""


def coefficients_of(engine: str, released: str) -> Coefficients:
    """Return the coefficients of an engine released in a month (``2026-02``; empty: the newest).

    Formula: none: a row of ``coefficients.json``, the first era that ends no sooner than the month.
    Unit: seconds, shares and counts, as each field says.
    Error: of the fit as a whole: median 8.7% of output tokens per second, 8.6% of TPOT, 26.2%
        of TTFT, in sample (docs/benchmarks/accuracy.md).
    Source: benchmarks/fit.py, on 3,551 published rows; the fields with a default are assumed.

    >>> coefficients_of("vLLM", "") == coefficients_of("vLLM", "2026-11")
    True
    """
    eras = _eras(engine)
    return next(
        (
            found
            for until, found in eras
            # Only the era that still holds takes a month that is not known.
            if not until or (released and released <= until)
        ),
        eras[-1][1],
    )


def band_of(engine: str, kind: str, facets: Iterable[str], *, known: bool) -> Band:
    """Return the band of a kind of measurement, or of a model if there is none.

    Formula: the row of the engine and the arrival, to the power of its distance: how much wider
        rows erred of which so many facets had less than ``ENOUGH_ROWS``; 1 -/+ ``BAND_MODELLED``
        without a row; both ends squared if a fact is unknown.
    Unit: a factor of the predicted output tokens per second.
    Error: holds ``BAND_LEVEL`` (80%) of the held-out rows that it was made from
        (docs/benchmarks/accuracy.md).
    Source: benchmarks/fit.py; the band of an unmeasured kind is assumed.

    Args:
        engine: The engine.
        kind: How requests arrive; empty for a kind that has hardly been measured.
        facets: The sort of model, the generation of GPU, how the weights are stored.
        known: Whether all facts of the model are; else the band is twice as wide.

    >>> band_of("vLLM", "", ["bf16"], known=True)
    Band(low=0.55, high=1.45, basis='modelled')
    >>> round(0.55**2, 4) == round(band_of("vLLM", "", ["bf16"], known=False).low, 4)
    True
    """
    rows = _data()["bands"].get(engine, {})
    far = distance(_data()["facets"].get(engine, {}), facets)
    low, high = rows.get(kind, (_MODELLED.low, _MODELLED.high))
    if kind in rows:
        wider = _data()["distances"][far]
        low, high = low**wider, high**wider
    basis = "fitted" if kind in rows and not far else _MODELLED.basis
    return (
        Band(low=low, high=high, basis=basis)
        if known
        # A factor that may be off twice over; the middle stays where it is.
        else Band(low=low * low, high=high * high, basis=basis)
    )


def distance(rows: Mapping[str, int], facets: Iterable[str]) -> int:
    """Return how many facets have hardly a row, ``FARTHEST`` at most.

    Formula: the facets with less than ``ENOUGH_ROWS``.
    Unit: facets.
    Error: none of its own.
    Source: derived.

    >>> distance({"full": 400, "bf16": 300, "int4": 1}, ["full", "bf16", "int4"])
    1
    """
    return min(FARTHEST, sum(rows.get(facet, 0) < ENOUGH_ROWS for facet in facets))


@cache
def _eras(engine: str) -> tuple[tuple[str, Coefficients], ...]:
    """Return an engine's eras, oldest first, each with the last month that it holds for (empty:
    still).
    """
    return tuple(
        (row["until"], Coefficients(**row["values"], **_data()["products"]))
        for row in _data()["engines"][engine]
    )


@cache
def _data() -> Mapping[str, Any]:
    text = (
        resources.files("shardwright.costs")
        .joinpath("coefficients.json")
        .read_text(encoding="utf-8")
    )
    data: Mapping[str, Any] = json.loads(text)
    return data
