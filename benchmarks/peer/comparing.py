"""Two sets of predictions beside each other, over the rows that both answer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FIGURES: Final = ("outputTokensPerSecond", "tpotSeconds", "ttftSeconds")
"""As a prediction names them."""

Prediction = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was measured for a case; a figure that its source does not say is left out."""

    id: str
    engine: str
    model: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Median absolute errors over measured of a group of rows, ours and theirs for each figure
    that some row of the group has.
    """

    group: str
    asked: int
    ours: int
    theirs: int
    both: int
    errors: Mapping[str, tuple[float, float]]


def compared(
    rows: Sequence[Published], ours: Mapping[str, Prediction], theirs: Mapping[str, Prediction]
) -> Iterator[Compared]:
    """Yield all rows, then those of each engine, then those of each model on each engine."""
    groups = [("all", rows)]
    for key in ("{0.engine}", "{0.engine}, {0.model}"):
        names = sorted({key.format(row) for row in rows})
        groups += [(name, [row for row in rows if key.format(row) == name]) for name in names]
    for name, members in groups:
        yield _group(name, members, ours, theirs)


def figure(prediction: Prediction | None, name: str) -> float | None:
    """Return a figure of a prediction; None where nothing is predicted."""
    if prediction is None or prediction.get("fits") is False:
        return None
    found = (prediction.get("performance") or {}).get(name)
    return float(found) if found else None


def _group(
    name: str,
    rows: Sequence[Published],
    ours: Mapping[str, Prediction],
    theirs: Mapping[str, Prediction],
) -> Compared:
    answered = [
        {row.id for row in rows if figure(side.get(row.id), FIGURES[0])} for side in (ours, theirs)
    ]
    both = [row for row in rows if row.id in answered[0] & answered[1]]
    return Compared(
        group=name,
        asked=len(rows),
        ours=len(answered[0]),
        theirs=len(answered[1]),
        both=len(both),
        errors={
            what: (_error(both, ours, what), _error(both, theirs, what))
            for what in FIGURES
            if any(what in row.figures for row in both)
        },
    )


def _error(rows: Sequence[Published], side: Mapping[str, Prediction], what: str) -> float:
    """Return the median absolute error; a figure that is not predicted is wrong by all of it."""
    return statistics.median(
        abs((figure(side[row.id], what) or 0.0) / row.figures[what] - 1)
        for row in rows
        if what in row.figures
    )
