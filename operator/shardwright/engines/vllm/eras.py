"""How vLLM budgets memory, in three eras cut by release date.

An era is found by a version's release, or by a month in it (``V1 2025-04``), else the newest
counts. Figures without a source are fitted to the rows of ``docs/memory.md``.
"""

import re
from dataclasses import dataclass
from typing import Final

from shardwright.layouts.traits import BatchDefault
from shardwright.units import GIB

_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)(?:\D|$)")
_MONTH: Final = re.compile(r"(20\d\d)-(\d\d)")

LARGE_BATCH: Final = BatchDefault(
    gpu_bytes=70 * GIB, compute_capability=(8, 9), tokens=8192, sequences=1024
)
HUGE_BATCH: Final = BatchDefault(
    gpu_bytes=160 * GIB, compute_capability=(0, 0), tokens=16384, sequences=1024
)
"""Batches that vLLM takes by itself on GPUs with much memory. The first leaves out compute
capability 8.0, where vLLM names the GPU. Source: vLLM 0.32
``engine/arg_utils.py:get_batch_defaults``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """One way to budget memory, from a release and month on.

    The other fields are those of :class:`~shardwright.layouts.traits.EngineTraits`.
    """

    release: tuple[int, int]
    month: tuple[int, int]
    memory_utilization: float
    logit_copies: float
    counts_graphs: bool
    chunks_prompts: bool
    batch_defaults: tuple[BatchDefault, ...]


ERAS: Final = (
    # no chunked prefill; sampling sorts the vocabulary (llama: 1.26 GiB at 256 sequences, mem-001)
    Era(
        release=(0, 0),
        month=(2023, 6),
        memory_utilization=0.9,
        logit_copies=10.0,
        counts_graphs=False,
        chunks_prompts=False,
        batch_defaults=(),
    ),
    Era(  # the V1 engine: named so from January 2025 on, the default since 0.8.0 (March)
        release=(0, 8),
        month=(2025, 1),
        memory_utilization=0.9,
        logit_copies=4.0,
        counts_graphs=False,
        chunks_prompts=True,
        batch_defaults=(LARGE_BATCH,),
    ),
    # graphs are estimated and taken from the budget (0.21; the month lies between 0.18 and 0.25)
    Era(
        release=(0, 21),
        month=(2026, 5),
        memory_utilization=0.92,
        logit_copies=4.0,
        counts_graphs=True,
        chunks_prompts=True,
        batch_defaults=(HUGE_BATCH, LARGE_BATCH),
    ),
)


def era_of(version: str) -> Era:
    """Return the era of a version.

    >>> [era_of(text).release for text in ("0.6.x", "V1 2025-04", "0.33.0", "nightly")]
    [(0, 0), (0, 8), (0, 21), (0, 21)]
    """
    if (release := release_of(version)) is not None:
        return next(era for era in reversed(ERAS) if release >= era.release)
    if found := _MONTH.search(version):
        month = (int(found[1]), int(found[2]))
        return next((era for era in reversed(ERAS) if month >= era.month), ERAS[0])
    return ERAS[-1]


def release_of(version: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version, None if it does not begin with them.

    >>> release_of("0.33.0"), release_of("0.6.x"), release_of("2024 (see paper)")
    ((0, 33), (0, 6), None)
    """
    found = _RELEASE.match(version)
    return (int(found[1]), int(found[2])) if found else None
