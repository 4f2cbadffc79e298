"""How models stand, in words and as data.

A start shows how long it has taken, not how far it is: nobody counts bytes.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from shardwright.cli.advice import Advice, advice
from shardwright.cli.model_state import ModelState, StandingGroup
from shardwright.hardware.untrusted import mapping
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import letters
from shardwright.reconcile.sentences import failure_sentence, waiting_sentence
from shardwright.reconcile.states import Situation
from shardwright.reporting.figures import format_plural, format_seconds
from shardwright.reporting.lines import (
    Line,
    Role,
    Span,
    line,
    paragraph,
    table,
    whole_rows,
)

BAR: Final = 20  #: cells of the bar of a group that loads

_SITUATIONS: Final = {
    Situation.STARTING: "starting",
    Situation.WAITING_FOR_QUOTA: "waiting for its queue",
    Situation.READY: "ready",
    Situation.UNREADY: "not answering",
    Situation.OUTDATED: "serving as it was",
    Situation.STOPPING: "stopping",
    Situation.BACKING_OFF: "pausing after a failure",
    Situation.STOPPED: "stopped",
}


def table_lines(
    found: Sequence[ModelState],
    now: datetime,
    width: int,
    *,
    namespaces: bool,
    wide: bool = False,
) -> Iterator[Line]:
    """Yield one line for each model; a wide one has its GPUs and its address, too."""
    header = (
        *(["NAMESPACE"] if namespaces else []),
        "NAME",
        "READY",
        "GROUPS",
        "SINCE",
        "LAYOUT",
        "GPUS",
        "REASON",
    )
    header = (*header, *(["PRODUCT", "ENDPOINT"] if wide else []))
    rows = [
        (
            *([item.namespace] if namespaces else []),
            *_row(item, now),
            *(_wide(item) if wide else ()),
        )
        for item in found
    ]
    yield from (
        whole_rows(header, rows)
        if wide
        else table(header, rows, width=width, indent="")
    )


def _row(item: ModelState, now: datetime) -> tuple[str, ...]:
    ready = sum(group.ready for group in item.groups)
    gpus = str(item.plan.get("gpus", "-"))
    reason = item.reason or "NotLookedAt"
    return (
        item.name,
        item.ready,
        "-" if item.wanted is None else f"{ready}/{item.wanted}",
        _age(item.since, now),
        layout_of(item.plan),
        gpus,
        reason,
    )


def _wide(item: ModelState) -> tuple[str, str]:
    return str(item.plan.get("product") or "-"), item.endpoint or "-"


def layout_of(plan: Any) -> str:
    """Return the degrees of a plan in a status, in the letters of ``status.layout``.

    >>> (
    ...     layout_of(
    ...         {
    ...             "layout": {
    ...                 "tensor": 8,
    ...                 "pipeline": 2,
    ...                 "expert": 1,
    ...                 "dataParallelAttention": 1,
    ...             }
    ...         }
    ...     ),
    ...     layout_of({"layout": {"tensor": 1}}),
    ...     layout_of({}),
    ... )
    ('TP8·PP2', 'TP1', '-')
    """
    layout = mapping(mapping(plan).get("layout"))
    degrees = Layout(
        tensor=_degree(layout.get("tensor")),
        pipeline=_degree(layout.get("pipeline")),
        attention_data=_degree(layout.get("dataParallelAttention")),
        expert=_degree(layout.get("expert")),
        context=_degree(layout.get("context")),
    )
    return letters(degrees) if layout else "-"


def _degree(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _age(since: datetime | None, now: datetime) -> str:
    """Return the time that has passed, in the form of an age of kubectl."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, most, size in (("s", 120, 1), ("m", 7200, 60), ("h", 172_800, 3600)):
        if seconds < most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def detail_lines(
    item: ModelState, now: datetime, width: int, program: str
) -> Iterator[Line]:
    """Yield all about one model: why, the state of each group, and the next commands."""
    state = {"True": "ready", "False": "not ready"}.get(
        item.ready, "nobody has looked at it yet"
    )
    since = f" for {_age(item.since, now)}" if item.since else ""
    reason = f", {item.reason}" if item.reason and item.ready != "True" else ""
    role = Role.HEADLINE if item.ready == "True" else Role.REFUSAL
    yield from paragraph(
        f"{item.name} in {item.namespace}: {state}{since}{reason}",
        width=width,
        role=role,
    )
    if item.message and item.ready != "True":
        yield from paragraph(item.message, width=width, first=[Span("  ")])
    yield from _labelled(item, width)
    for group in item.groups:
        yield from _group(group, now, width)
    if found := advice(item, program):
        yield line(Span("What to run", Role.SECTION))
        for one in found:
            yield from _advice(one, width)


def _labelled(item: ModelState, width: int) -> Iterator[Line]:
    """Yield conditions and facts, each behind its label, and all of them in one column."""
    said = [
        *(
            (str(one.get("reason", "")), Role.WARNING, str(one.get("message", "")))
            for one in item.conditions
        ),
        *((label, Role.LABEL, value) for label, value in _facts(item)),
    ]
    room = max((len(label) for label, _, _ in said), default=0)
    for label, role, value in said:
        first = (Span(f"  {label:<{room}}  ", role),)
        yield from paragraph(value, width=width, first=first)


def _facts(item: ModelState) -> Iterator[tuple[str, str]]:
    plan = item.plan
    if item.meant:
        yield "Model", f"not built in; did you mean {' or '.join(item.meant)}?"
    if plan.get("layout"):
        gpus, nodes = (int(plan.get(name) or 0) for name in ("gpus", "nodes"))
        where = f"{format_plural(gpus, 'GPU')} of {format_plural(nodes, 'node')}"
        yield "Plan", f"{layout_of(plan)} on {where} ({plan.get('product')})"
    if item.endpoint:
        yield "Serves", item.endpoint


def _group(group: StandingGroup, now: datetime, width: int) -> Iterator[Line]:
    state = group.state
    word = (
        _SITUATIONS[state.situation]
        if state
        else ("ready" if group.ready else "not ready")
    )
    since = f" for {_age(group.since, now)}" if group.since else ""
    bar = _bar(group)
    yield line(
        Span(f"  {group.name}", Role.LABEL),
        Span(f"  {word}{since}", Role.PLAIN if group.ready else Role.WARNING),
        *bar,
    )
    for sentence in _sentences(group):
        yield from paragraph(sentence, width=width, first=[Span("    ")])


def _bar(group: StandingGroup) -> tuple[Span, ...]:
    """Return the share of a start's time that is over, as a bar. Nobody counts its bytes."""
    loading = group.loading
    if loading is None:
        return ()
    if loading.share is None:
        return (Span(f"  {format_seconds(round(loading.seconds))}"),)
    full = round(loading.share * BAR)
    most = format_seconds(loading.most_seconds or 0)
    return (
        Span("  "),
        Span("\N{FULL BLOCK}" * full, Role.WEIGHTS),
        Span("\N{LIGHT SHADE}" * (BAR - full), Role.FAINT),
        Span(f"  {format_seconds(max(1, round(loading.seconds)))} of at most {most}"),
    )


def _sentences(group: StandingGroup) -> Iterator[str]:
    if group.said:
        yield group.said
    state = group.state
    if state is None or group.ready:
        return
    blockers = sorted({rank for wait in group.waited_for for rank in wait.ranks})
    if group.waiting_for_peers and blockers:
        verb = "wait" if len(group.waiting_for_peers) > 1 else "waits"
        yield f"{_ranks(group.waiting_for_peers)} {verb} for {_ranks(blockers)}"
    if sentence := waiting_sentence(state):
        yield sentence
    if state.failing:
        yield f"failed: {failure_sentence(state)}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _advice(one: Advice, width: int) -> Iterator[Line]:
    if len(one.command) + len(one.purpose) + 8 <= width:
        yield line(
            Span(f"  {one.command}", Role.COMMAND),
            Span(f"  # {one.purpose}", Role.FAINT),
        )
    else:
        yield line(Span(f"  # {one.purpose}", Role.FAINT))
        yield line(Span(f"  {one.command}", Role.COMMAND))


def document(item: ModelState, program: str) -> dict[str, Any]:
    """Return the state of a model as a document for programs."""
    return {
        "metadata": {"name": item.name, "namespace": item.namespace},
        "ready": item.ready,
        "reason": item.reason,
        "message": item.message,
        "since": _time(item.since),
        "current": item.current,
        "plan": {
            name: item.plan[name]
            for name in ("layout", "nodes", "gpus", "product")
            if name in item.plan
        },
        "endpoint": item.endpoint or None,
        "conditions": [
            {name: one.get(name) for name in ("type", "reason", "message")}
            for one in item.conditions
        ],
        "groups": [_group_document(group) for group in item.groups],
        "commands": [
            {"command": one.command, "purpose": one.purpose}
            for one in advice(item, program)
        ],
    }


def _group_document(group: StandingGroup) -> dict[str, Any]:
    state = group.state
    loading = group.loading
    waits = (
        [
            {"for": wait.what.value, "ranks": list(wait.ranks), "said": wait.said}
            for wait in state.waits
        ]
        if state
        else []
    )
    return {
        "name": group.name,
        "ready": group.ready,
        "situation": state.situation.value if state else None,
        "since": _time(group.since),
        "waits": waits,
        "message": group.said or (waiting_sentence(state) if state else ""),
        "restarts": state.restarts if state else None,
        "loading": {
            "seconds": round(loading.seconds),
            "mostSeconds": loading.most_seconds,
        }
        if loading
        else None,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None
