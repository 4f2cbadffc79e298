"""The plan of record: the chosen plan as kept in a ConfigMap, to be read back to the last bit.

It reserves its nodes and is shown to users, but is never input to scoring.

A record of any release is read for ever: a new field has a default; one that goes or changes its
name or meaning takes a new version. Unknown fields of a later release are kept and written again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from shardwright.errors import Problem
from shardwright.hardware.provisioning import Sought
from shardwright.planning.report import Alternative, Exclusion, FrontPoint, LossKind, Plan, Report

Plain = Mapping[str, Any]
"""An object of JSON."""

RECORD_VERSION: Final = 1

RECORD_KEY: Final = "plan.json"
"""Key of the ConfigMap that holds the text."""


class Cause(StrEnum):
    """Why a model runs an earlier revision than its spec says."""

    ASKED = "Asked"
    ENGINE_FAILED = "EngineFailed"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"


_LOSS_KINDS: Final = frozenset(kind.value for kind in LossKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The revision that a model has rolled back to, the replaced spec (both by hash), and why.

    ``group`` did not come up with the spec, and ``said`` is its engine's last output; both are
    empty if somebody asked. ``engine_version`` is the spec's, if it leaves the version open: the
    record has the running revision's.
    """

    to: str
    instead_of: str
    cause: Cause
    group: str = ""
    said: str = ""
    engine_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan and the question that it answers.

    ``input_hash`` covers all that makes a new plan necessary, ``cut_hash`` the same without the
    number of replicas: while it stays, scaling moves no group. ``generations`` are the least of
    each group: a later one starts beside the one that serves. ``sought`` say how groups ask for
    nodes that were still to come, even if they are real by now. ``engine_version`` is set if the
    spec leaves it open (else empty). ``serial`` grows with every record written of a resource,
    which shows an earlier one that comes back. ``rejected`` is the hash of the spec's pods with
    which a group, gone since, did not come up (empty: none). ``improved_at`` is when a better plan
    last replaced one that served (None: never). ``rollback`` is the revision run instead of the
    spec (None: the spec is run), ``answered`` the last answered rollback request; ``unknown``: it
    named no existing revision. ``beyond`` are a later release's fields, each at its place.
    ``front`` is as in a report.
    """

    version: int = RECORD_VERSION
    input_hash: str
    cut_hash: str
    generation: int
    plan: Plan
    alternatives: tuple[Alternative, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    considered: int = 0
    front: tuple[FrontPoint, ...] = ()
    generations: tuple[int, ...] = ()
    sought: tuple[Sought, ...] = ()
    engine_version: str = ""
    rejected: str = ""
    improved_at: datetime | None = None
    rollback: Rollback | None = None
    answered: str = ""
    unknown: bool = False
    serial: int = field(default=0, compare=False)
    beyond: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def moved(self, group: int, nodes: tuple[str, ...], generation: int) -> "PlanRecord":
        """Return the record with a group on other nodes, as this generation."""
        groups = list(self.plan.groups)
        groups[group] = nodes
        least = [*self.generations, *(0 for _ in groups)][: len(groups)]
        least[group] = generation
        return replace(
            self, plan=replace(self.plan, groups=tuple(groups)), generations=tuple(least)
        )

    @property
    def default_of_spec(self) -> str:
        """Return the spec's default engine version (``engine_version``), run or not."""
        return self.rollback.engine_version if self.rollback else self.engine_version

    def report(self) -> Report:
        """Return the report that this record was made from."""
        return Report(
            outcome=self.plan,
            alternatives=self.alternatives,
            excluded=self.excluded,
            considered=self.considered,
            front=self.front,
        )


def encode(record: PlanRecord) -> str:
    """Return the record as JSON: same record, same bytes."""
    return json.dumps(
        _joined(_known(record), record.beyond),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def decode(text: str) -> PlanRecord | Problem:
    """Return the record, or why it cannot be read (edited by hand, or a later release's)."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return _unreadable("is not JSON")
    version = plain.get("version") if isinstance(plain, dict) else None
    # The type itself: True would be version 1.
    if type(version) is not int or version != RECORD_VERSION:
        return _unreadable(f"has version {str(version)[:20]}, not {RECORD_VERSION}")
    plain = _without_unknown_losses(plain)
    try:
        record = _adapter().validate_python(
            # The fields beyond are worked out below, and never believed.
            {**plain, "beyond": {}}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    if not _can_be_numbers(record.plan):
        return _unreadable(
            "plan.numbers: must be one for each group, from 0, each greater than the one before"
        )
    return replace(record, beyond=_beyond(plain, _known(record)))


def _without_unknown_losses(plain: Plain) -> Plain:
    # They inform, and no plan is worth less without them.
    others = plain.get("alternatives")
    if not isinstance(others, list):
        return plain
    return {**plain, "alternatives": [_with_known_losses(other) for other in others]}


def _with_known_losses(other: Any) -> Any:
    losses = other.get("losses") if isinstance(other, dict) else None
    if not isinstance(losses, list):
        return other
    kept = [
        loss for loss in losses if not isinstance(loss, dict) or _may_be_known(loss.get("kind"))
    ]
    return {**other, "losses": kept}


def _may_be_known(kind: object) -> bool:
    # Anything but a word was written by hand, and is refused with the record.
    return not isinstance(kind, str) or kind in _LOSS_KINDS


def _can_be_numbers(plan: Plan) -> bool:
    numbers = plan.group_numbers
    return len(numbers) == len(plan.groups) and all(a < b for a, b in pairwise((-1, *numbers)))


def _known(record: PlanRecord) -> Plain:
    plain: Plain = _adapter().dump_python(record, mode="json", exclude={"beyond"})
    return plain


def _beyond(plain: Plain, known: Plain) -> dict[str, Any]:
    """Return the fields of ``plain`` missing in ``known``, each at its place; not in lists."""
    inner = {
        name: _beyond(value, known[name])
        for name, value in plain.items()
        if isinstance(value, dict) and isinstance(known.get(name), dict)
    }
    return {name: plain[name] for name in plain if name not in known} | {
        name: more for name, more in inner.items() if more
    }


def _joined(known: Plain, beyond: Plain) -> dict[str, Any]:
    both = {name: value for name, value in beyond.items() if name not in known}
    return both | {
        name: _joined(value, beyond[name]) if isinstance(value, dict) and name in beyond else value
        for name, value in known.items()
    }


@cache
def _adapter() -> TypeAdapter[PlanRecord]:
    return TypeAdapter(PlanRecord)


def _unreadable(why: str) -> Problem:
    return Problem(
        code="PlanRecordUnreadable",
        what="the plan of record",
        limit=why,
        remedy="what runs is left as it is; delete the ConfigMap to have a new plan made",
    )
