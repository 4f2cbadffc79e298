"""Which repositories give no file without a token of a user who has accepted their terms?

The rows are data (``gating.csv``): an id, or the beginning of the ids of an organisation or a
family, whether it is gated, and source and day.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final


class Gating(StrEnum):
    """Whether a repository is gated."""

    GATED = "Gated"
    OPEN = "Open"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryGate:
    """Whether a repository is gated, with the day of reading (as ``2026-11-25``) and source, empty
    if unknown.
    """

    gating: Gating
    read: str = ""
    source: str = ""


_UNKNOWN: Final = RepositoryGate(gating=Gating.UNKNOWN)
_WHETHER: Final = MappingProxyType({"yes": Gating.GATED, "no": Gating.OPEN})
_OPEN_END: Final = ("/", "-")
"""What a row ends with that is about all ids which begin so."""


def gate_of(model_id: str) -> RepositoryGate:
    """Return whether a repository is gated; of several rows about it the longest holds.

    >>> gate_of("meta-llama/Llama-3.1-8B-Instruct").gating.value
    'Gated'
    >>> gate_of("Qwen/Qwen3-8B").gating.value, gate_of("Qwen/Qwen3-8B-FP8").gating.value
    ('Open', 'Unknown')
    """
    about = (row for row in _gates() if row == model_id or _is_start(row, model_id))
    row = max(about, key=len, default=None)
    return _UNKNOWN if row is None else _gates()[row]


def _is_start(row: str, model_id: str) -> bool:
    return row.endswith(_OPEN_END) and model_id.startswith(row)


@cache
def _gates() -> Mapping[str, RepositoryGate]:
    table = files("shardwright.modelspec").joinpath("gating.csv")
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    gates = {row["id"]: _gate(row) for row in rows}
    return MappingProxyType(gates)


def _gate(row: Mapping[str, str]) -> RepositoryGate:
    return RepositoryGate(gating=_WHETHER[row["gated"]], read=row["read"], source=row["source"])
