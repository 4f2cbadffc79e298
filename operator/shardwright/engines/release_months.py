"""When a version of an engine was released: its minor version's month, or the string's own."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_MONTHS: Final[Mapping[str, Mapping[tuple[int, int], str]]] = MappingProxyType(
    {
        "vLLM": {
            (0, 4): "2024-03",
            (0, 5): "2024-06",
            (0, 6): "2024-09",
            (0, 7): "2025-01",
            (0, 8): "2025-03",
            (0, 9): "2025-05",
            (0, 10): "2025-07",
            (0, 11): "2025-10",
            (0, 12): "2025-12",
            (0, 13): "2025-12",
            (0, 14): "2026-01",
            (0, 15): "2026-01",
            (0, 16): "2026-02",
            (0, 17): "2026-03",
        },
        "TensorRT-LLM": {
            (0, 9): "2024-04",
            (0, 10): "2024-06",
            (0, 11): "2024-07",
            (0, 12): "2024-09",
            (0, 13): "2024-09",
            (0, 14): "2024-11",
            (0, 15): "2024-12",
            (0, 16): "2024-12",
            (0, 17): "2025-02",
            (0, 18): "2025-03",
            (0, 19): "2025-05",
            (0, 20): "2025-06",
            (0, 21): "2025-07",
            (1, 0): "2025-09",
            (1, 1): "2025-11",
            (1, 2): "2026-01",
        },
        "SGLang": {
            (0, 1): "2024-01",
            (0, 2): "2024-07",
            (0, 3): "2024-09",
            (0, 4): "2024-12",
            (0, 5): "2025-09",
        },
    }
)
"""Month of the first release of every minor version. Source: the projects' release pages and the
dates of groundtruth/throughput_dev.csv.
"""

_DATE: Final = re.compile(r"(20[2-3]\d)(?:-?(0[1-9]|1[0-2]))?")
_MINOR: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})")


def release_month(engine: str, version: str | None) -> str:
    """Return a version's month (``2026-02``, for a year ``2024-12``), empty if unknown.

    >>> (
    ...     release_month("vLLM", "nightly-dev-20260216-d3bae71e"),
    ...     release_month("TensorRT-LLM", "0.12.0"),
    ... )
    ('2026-02', '2024-09')
    >>> (
    ...     release_month("vLLM", "2024 (see paper)"),
    ...     release_month("vLLM", "nightly"),
    ...     release_month("vLLM", "0.33.0"),
    ... )
    ('2024-12', '', '')
    """
    text = version or ""
    if dated := _DATE.search(text):
        return f"{dated[1]}-{dated[2] or '12'}"
    numbered = _MINOR.match(text)
    if numbered is None:
        return ""
    minor = (int(numbered[1]), int(numbered[2]))
    months = _MONTHS[engine]
    return next((month for listed, month in months.items() if listed >= minor), "")
