"""The plan of record: the chosen plan as it is kept in a ConfigMap, to be read back to the last bit.

It is the reservation of its nodes and what is shown; it is never input to scoring.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from shardwright.errors import Problem
from shardwright.planning.report import Alternative, Exclusion, Plan, Report

RECORD_VERSION: Final = 1
RECORD_KEY: Final = "plan.json"
"""Key of the ConfigMap that holds the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan and the question that it answers.

    ``input_hash`` covers everything that makes a new plan necessary when it changes, ``cut_hash`` the same
    without the number of replicas: while it stays, scaling adds or drops groups and moves none. ``generations`` say of which
    generation each group is at least: a later one starts beside the one that serves.
    """

    version: int = RECORD_VERSION
    input_hash: str
    cut_hash: str
    generation: int
    plan: Plan
    alternatives: tuple[Alternative, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    considered: int = 0
    generations: tuple[int, ...] = ()

    def moved(self, group: int, nodes: tuple[str, ...], generation: int) -> "PlanRecord":
        """Return the record with a group on other nodes, as this generation."""
        groups = list(self.plan.groups)
        groups[group] = nodes
        least = [*self.generations, *(0 for _ in groups)][: len(groups)]
        least[group] = generation
        return replace(self, plan=replace(self.plan, groups=tuple(groups)), generations=tuple(least))

    def report(self) -> Report:
        """Return the report that this record was made from."""
        return Report(outcome=self.plan, alternatives=self.alternatives, excluded=self.excluded, considered=self.considered)


def encode(record: PlanRecord) -> str:
    """Return the record as JSON: same record, same bytes."""
    plain = _adapter().dump_python(record, mode="json")
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> PlanRecord | Problem:
    """Return the record, or why it cannot be read (edited by hand, or written by a newer version)."""
    try:
        plain = json.loads(text)
    except ValueError:
        return _unreadable("is not JSON")
    version = plain.get("version") if isinstance(plain, dict) else None
    if version != RECORD_VERSION:
        return _unreadable(f"has version {str(version)[:20]}, not {RECORD_VERSION}")
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


@cache
def _adapter() -> TypeAdapter[PlanRecord]:
    return TypeAdapter(PlanRecord)


def _unreadable(why: str) -> Problem:
    return Problem(
        code="PlanRecordUnreadable",
        what="the plan of record",
        limit=why,
        remedy="a new plan is made; delete the ConfigMap to be rid of the message",
    )
