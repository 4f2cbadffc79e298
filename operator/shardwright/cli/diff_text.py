"""A difference in words and as data: the spec, the plan, and which groups restart for how long."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from shardwright import __version__
from shardwright.api.plan_status import planned_nodes
from shardwright.cli.changed_values import FieldChange
from shardwright.cli.rehearsal import Fate, GroupFate, ModelDifference, ObjectChange
from shardwright.documents import to_camel
from shardwright.planning.phrases import copies
from shardwright.planning.report import Plan, Report
from shardwright.reporting.explanation import explain
from shardwright.reporting.figures import format_seconds
from shardwright.reporting.lines import Line, Role, Span, line, paragraph, table
from shardwright.units import format_plural

SHOWN_FIELDS: Final = 3
"""Fields of an object named in text; JSON has all. Basis: assumed, the first tell which
part it is.
"""

SHOWN_VALUE: Final = 60
"""Characters of a value of the spec in text. Basis: assumed, an image fits."""

FATES: Final[Mapping[Fate, str]] = {
    Fate.STAYS: "stays",
    Fate.RESTARTS: "restarts",
    Fate.BESIDE: "starts anew beside its running pods",
    Fate.KEEPS: "keeps its pods",
    Fate.STARTS: "starts",
    Fate.ENDS: "ends",
    Fate.UNKNOWN: "may restart",
}


def difference_lines(difference: ModelDifference, width: int) -> Iterator[Line]:
    """Yield the changes, for a person."""
    restarts = len(difference.rehearsed.restarts)
    role = Role.WARNING if restarts else Role.HEADLINE
    yield from paragraph(f"{difference.name}: {_headline(difference)}", width=width, role=role)
    if difference.fields:
        yield _section("Spec")
        yield from table(
            ("FIELD", "NOW", "THEN"), [_field(change) for change in difference.fields], width=width
        )
    if difference.differs:
        yield _section("Plan")
        yield from paragraph(_plan(difference), width=width, first=[Span("  ")])
    yield from _groups(difference, width)
    if difference.rehearsed.objects:
        yield _section("Other objects")
        rows = [
            (f"{item.kind}/{item.name}", item.how, _some(item))
            for item in difference.rehearsed.objects
        ]
        yield from table(("OBJECT", "IS", "FIELDS"), rows, width=width)
    yield Line()
    for note in _notes(difference):
        yield from paragraph(note, width=width, role=Role.FAINT)


def _headline(difference: ModelDifference) -> str:
    restarts = len(difference.rehearsed.restarts)
    groups = difference.rehearsed.groups
    if not difference.exists:
        return "is not in the cluster; would be created"
    if not difference.differs:
        return "nothing changes"
    ends = sum(group.fate is Fate.ENDS for group in groups)
    may = sum(group.fate is Fate.UNKNOWN for group in groups)
    says = "may change" if difference.rehearsed.refused else "changes"
    parts = [
        (
            f"{restarts} of {format_plural(len(groups), 'group')} "
            f"{'restarts' if restarts == 1 else 'restart'}"
        )
        if restarts
        else "",
        f"{format_plural(ends, 'group')} {'ends' if ends == 1 else 'end'}" if ends else "",
        f"{format_plural(may, 'group')} may restart" if may else "",
    ]
    return ", ".join(filter(None, parts)) or f"{says}, and restarts nothing"


def _field(change: FieldChange) -> tuple[str, str, str]:
    return change.path, _value(change.before), _value(change.after)


def _value(value: Any) -> str:
    text = (
        "-"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )
    return text if len(text) <= SHOWN_VALUE else text[: SHOWN_VALUE - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _plan(difference: ModelDifference) -> str:
    before, after, found = (
        difference.plan_before,
        difference.plan_after,
        difference.rehearsed.published.found,
    )
    if found.no_plan:
        return f"there is none: {found.no_plan.problem.sentence()}"
    if found.problems:
        return found.problems[0].sentence()
    if after is None:
        return "there is none"
    return _change_of_plan(before, after)


def _change_of_plan(before: Plan | None, after: Plan) -> str:
    then = said_of(after)
    if before is None:
        return then
    if before == after:
        return f"stays: {then}"
    was = said_of(before)
    return (
        f"{then}, now on {', '.join(planned_nodes(after))}"
        if was == then
        else f"{was} becomes {then}"
    )


def said_of(plan: Plan) -> str:
    """Return a plan in one line."""
    return explain(Report(outcome=plan, alternatives=(), excluded=(), considered=0)).headline


def _groups(difference: ModelDifference, width: int) -> Iterator[Line]:
    groups = difference.rehearsed.groups
    seconds = difference.rehearsed.start_seconds
    if not groups or not difference.differs:
        return
    yield _section("Groups")
    rows = [
        (group.name, FATES[group.fate], _down(group, seconds), _some(group)) for group in groups
    ]
    yield from table(("GROUP", "WHAT", "DOWN FOR", "FIELDS OF ITS PODS"), rows, width=width)


def _down(group: GroupFate, seconds: int | None) -> str:
    """Say for how long a group does not serve: its limit, and its last time."""
    if group.fate not in {Fate.RESTARTS, Fate.UNKNOWN}:
        return "for good" if group.fate is Fate.ENDS else "-"
    most = f"at most {format_seconds(seconds)}" if seconds else "?"
    return (
        most
        if group.last_outage_seconds is None
        else f"{most}, {format_seconds(group.last_outage_seconds)} last time"
    )


def _some(item: GroupFate | ObjectChange) -> str:
    fields = [f"{path} (removed)" if path in item.removed else path for path in item.fields]
    more = f", {len(fields) - SHOWN_FIELDS} more" if len(fields) > SHOWN_FIELDS else ""
    return ", ".join(fields[:SHOWN_FIELDS]) + more or "-"


def _notes(difference: ModelDifference) -> Iterator[str]:
    waits = [
        group for group in difference.rehearsed.groups if group.fate is Fate.STAYS and group.fields
    ]
    if waits:
        yield (
            "Groups that stay take changed fields on with their next restart, whatever its cause."
        )
    if any(group.fate is Fate.BESIDE for group in difference.rehearsed.groups):
        yield (
            "A group starts anew beside its running pods where GPUs are free when its turn "
            "comes; else it restarts."
        )
    if difference.rehearsed.restarts:
        yield (
            "Groups restart one after another, as spec.rollout says. A start that takes longer "
            "than that time counts as failed."
        )
    for said in difference.rehearsed.refused:
        yield f"Fields that would be removed are not known: {said}"
    if difference.restarts_anyway:
        names = ", ".join(difference.restarts_anyway)
        yield (
            f"{names} would restart for the spec in the cluster, too: the operator's settings "
            "are not known here (--settings)."
        )
    yield f"As release {__version__} plans and renders; nothing was written."


def _section(name: str) -> Line:
    return line(Span(name, Role.SECTION))


def difference_document(difference: ModelDifference) -> dict[str, Any]:
    """Return the changes as a document for programs."""
    rehearsed = difference.rehearsed
    return {
        "metadata": {"name": difference.name, "namespace": difference.namespace},
        "exists": difference.exists,
        "differs": difference.differs,
        "operatorVersion": __version__,
        "spec": [asdict(change) for change in difference.fields],
        "plan": {"before": _shown(difference.plan_before), "after": _shown(difference.plan_after)},
        "startSeconds": rehearsed.start_seconds,
        "groups": [_camel(group) for group in rehearsed.groups],
        "objects": [_camel(change) for change in rehearsed.objects],
        "restartsAnyway": list(difference.restarts_anyway),
        "refused": list(rehearsed.refused),
    }


def _shown(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "layout": copies(plan.layout),
        "product": plan.product,
        "nodes": list(planned_nodes(plan)),
    }


def _camel(item: GroupFate | ObjectChange) -> dict[str, Any]:
    return {to_camel(name): value for name, value in asdict(item).items()}
