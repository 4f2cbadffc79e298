"""The command ``status``: what models wait for, why their groups failed, and the next commands.

Writes nothing.

How models stand, in words and as data.

A start shows the time it has taken, not its progress: no bytes are counted.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.commands import program_name
from shardwright.cli.diagnosis import names
from shardwright.cli.exits import Exit
from shardwright.cli.live_models import list_models, list_objects, no_such_model
from shardwright.cli.model_state import ModelState, StandingGroup, advice, read_pods, standing_of
from shardwright.cli.output import (
    Sheet,
    clear_terminal,
    print_lines,
    print_list,
    print_note,
    widest_that_fits,
    width_of_output,
)
from shardwright.cluster.client import Client
from shardwright.cluster.resources import PODS, STATEFUL_SETS
from shardwright.pipeline.documents import to_camel
from shardwright.reconcile.members import Failure
from shardwright.reconcile.wording import failed_sentence
from shardwright.rendering.labels import MODEL
from shardwright.reporting.figures import format_seconds
from shardwright.reporting.lines import Line, Role, Span, fits, line, paragraph, whole_rows
from shardwright.units import format_plural

BAR: Final = 20  #: cells of the bar of a group that loads


def table_lines(
    found: Sequence[ModelState], now: datetime, width: int, *, namespaces: bool, wide: bool = False
) -> Iterator[Line]:
    """Yield a line per model, in kubectl's columns; a wide one adds product and endpoint."""
    header = [
        *(["NAMESPACE"] if namespaces else []),
        *("NAME", "READY", "REASON", "LAYOUT", "GPUS", "SINCE"),
        *(["PRODUCT", "ENDPOINT"] if wide else []),
    ]
    rows = [
        [
            *([item.namespace] if namespaces else []),
            item.name,
            item.running or "-",
            item.reason or "NotLookedAt",
            item.layout or "-",
            "-" if item.gpus is None else str(item.gpus),
            _age(item.since, now),
            *([_product(item), item.endpoint or "-"] if wide else []),
        ]
        for item in found
    ]
    yield from (whole_rows(header, rows) if wide else _list(Sheet(header=header, rows=rows), width))


def _list(sheet: Sheet, width: int) -> list[Line]:
    shorter = sheet.without("SINCE"), sheet.without("SINCE", "LAYOUT")
    if fits(shorter[-1].header, shorter[-1].rows, width=width, indent=""):
        return widest_that_fits((sheet, *shorter), width=width)
    # Long names: a list stays one, a line a model.
    return whole_rows(shorter[-1].header, shorter[-1].rows)


def _product(item: ModelState) -> str:
    return str(item.plan.get("product") or "-")


def _age(since: datetime | None, now: datetime) -> str:
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, most, size in (("s", 120, 1), ("m", 7200, 60), ("h", 172_800, 3600)):
        if seconds < most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def detail_lines(item: ModelState, now: datetime, width: int, program: str) -> Iterator[Line]:
    """Yield the whole of a model: why it is so, the state of each group, and the next commands."""
    state = {"True": "ready", "False": "not ready"}.get(item.ready, "nobody has looked at it yet")
    since = f" for {_age(item.since, now)}" if item.since else ""
    reason = f", {item.reason}" if item.reason and item.ready != "True" else ""
    role = Role.HEADLINE if item.ready == "True" else Role.REFUSAL
    yield from paragraph(
        f"{item.name} in {item.namespace}: {state}{since}{reason}", width=width, role=role
    )
    if item.message and item.ready != "True":
        yield from paragraph(item.message, width=width, first=[Span("  ")])
    yield from _labelled(item, width)
    for group in item.groups:
        yield from _group(group, item.most_seconds, width)
    if found := advice(item, program):
        yield line(Span("What to run", Role.SECTION))
        for command, purpose in found:
            yield from _advice(command, purpose, width)


def _labelled(item: ModelState, width: int) -> Iterator[Line]:
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
    if item.layout:
        # What runs on has its nodes in the plan that is shown no more, if nothing fits the spec.
        nodes = f" of {format_plural(int(plan['nodes']), 'node')}" if plan.get("nodes") else ""
        where = f"{format_plural(item.gpus or 0, 'GPU')}{nodes}"
        yield "Plan", f"{item.layout} on {where}" + (f" ({_product(item)})" if nodes else "")
    if item.endpoint:
        yield "Serves", ", to ".join(filter(None, (item.endpoint, item.clients)))


def _group(group: StandingGroup, most: int | None, width: int) -> Iterator[Line]:
    word = "ready" if group.ready else "not ready"
    yield line(
        Span(f"  {group.name}", Role.LABEL),
        Span(f"  {word}", Role.PLAIN if group.ready else Role.WARNING),
        *_bar(group.loading, most),
    )
    if group.said or (group.nodes and not group.ready):
        nodes = "" if group.ready else names(list(filter(None, group.nodes)))
        said = ": ".join(filter(None, (nodes and f"on {nodes}", group.said)))
        yield from paragraph(said, width=width, first=[Span("    ")])
    if group.failure and not group.ready:
        failed = f"failed: {failed_sentence(group.failure, group.restarts or 0)}"
        yield from paragraph(failed, width=width, first=[Span("    ")])


def _bar(seconds: float | None, most: int | None) -> tuple[Span, ...]:
    if seconds is None:
        return ()
    if not most:
        return (Span(f"  {format_seconds(round(seconds))}"),)
    full = round(min(1.0, seconds / most) * BAR)
    return (
        Span("  "),
        Span("\N{FULL BLOCK}" * full, Role.WEIGHTS),
        Span("\N{LIGHT SHADE}" * (BAR - full), Role.FAINT),
        Span(f"  {format_seconds(max(1, round(seconds)))} of at most {format_seconds(most)}"),
    )


def _advice(command: str, purpose: str, width: int) -> Iterator[Line]:
    typed, why = Span(f"  {command}", Role.COMMAND), Span(f"  # {purpose}", Role.FAINT)
    if len(typed.text + why.text) <= width:
        yield line(typed, why)
    else:
        yield line(why)
        yield line(typed)


def document(item: ModelState, program: str) -> dict[str, Any]:
    """Return the state of a model as a document for programs."""
    return {
        "metadata": {"name": item.name, "namespace": item.namespace},
        "ready": item.running or None,
        "condition": item.ready,
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
        "clients": item.clients or None,
        "conditions": [
            {name: one.get(name) for name in ("type", "reason", "message")}
            for one in item.conditions
        ],
        "groups": [_group_as_json(group, item.most_seconds) for group in item.groups],
        "commands": [
            {"command": command, "purpose": purpose} for command, purpose in advice(item, program)
        ],
    }


def _group_as_json(group: StandingGroup, most: int | None) -> dict[str, Any]:
    seconds = group.loading
    return {
        "name": group.name,
        "ready": group.ready,
        "nodes": list(group.nodes),
        "message": group.said,
        "restarts": group.restarts,
        "lastFailure": _camel(group.failure),
        "loading": None if seconds is None else {"seconds": round(seconds), "mostSeconds": most},
    }


def _camel(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {to_camel(name): value for name, value in asdict(failure).items()}


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None


REFRESH_SECONDS: Final = 2.0
"""How often ``--watch`` looks; assumed: a person reads no faster, and it costs the API server three
LISTs.
"""


def status(arguments: Namespace) -> Exit:
    """Print how models stand, once or repeatedly.

    Raises:
        InputError: there is none of the name that is asked for.
    """
    if arguments.watch:
        _watch(arguments)
    now = datetime.now(UTC)
    found = _read(arguments, now)
    if arguments.output == "name":
        print_lines(line(f"shardedmodel.shardwright.io/{item.name}") for item in found)
    elif arguments.output in {"json", "yaml"}:
        items = [document(item, _program()) for item in found]
        print_list("ModelStandingList", items, arguments.output)
    else:
        print_lines(_lines(found, now, arguments))
        if not found:
            namespace = _namespace(arguments)
            print_note(
                f"there is no ShardedModel in namespace {namespace}; -n names another one, "
                "-A shows those of all"
                if namespace
                else "there is no ShardedModel in any namespace"
            )
    return Exit.PLAN


def _watch(arguments: Namespace) -> None:
    """Show how models stand until interrupted; outside a terminal only changes."""
    terminal = sys.stdout.isatty()
    before: list[ModelState] | None = None
    while True:
        now = datetime.now(UTC)
        found = _read(arguments, now)
        facts = [_without_times(item) for item in found]
        if terminal:
            clear_terminal()
        if terminal or facts != before:
            gap = () if before is None or terminal else (Line(),)
            print_lines([*gap, *_lines(found, now, arguments)])
            sys.stdout.flush()
            before = facts
        time.sleep(REFRESH_SECONDS)


def _without_times(item: ModelState) -> ModelState:
    return replace(item, groups=tuple(replace(group, loading=None) for group in item.groups))


def _lines(found: Sequence[ModelState], now: datetime, arguments: Namespace) -> Iterator[Line]:
    width, one = width_of_output(), bool(arguments.name)
    if not one and found:
        wide = arguments.output == "wide"
        everywhere = arguments.all_namespaces
        yield from table_lines(found, now, width, namespaces=everywhere, wide=wide)
    for index, item in enumerate(
        found if one else [item for item in found if item.ready != "True"]
    ):
        if index or not one:
            yield Line()
        yield from detail_lines(item, now, width, _program())


def _program() -> str:
    return program_name(sys.argv[0])


def _namespace(arguments: Namespace) -> str | None:
    target: Target = arguments.target
    return None if arguments.all_namespaces else target.namespace


def _read(arguments: Namespace, now: datetime) -> list[ModelState]:
    target: Target = arguments.target
    namespace = _namespace(arguments)
    return target.ask(lambda client: _standing(client, namespace, arguments.name, now))


async def _standing(
    client: Client, namespace: str | None, name: str | None, now: datetime
) -> list[ModelState]:
    # One after another: the first failure says why.
    models = await list_models(client, namespace)
    sets, pods = [
        await unless_forbidden(list_objects(client, resource, namespace, labelSelector=MODEL))
        for resource in (STATEFUL_SETS, PODS)
    ]
    if name:
        models = [item for item in models if item["metadata"]["name"] == name]
        if not models:
            await no_such_model(client, namespace or "", name)
    by_group = {} if sets is None or pods is None else read_pods(sets, pods)
    return [standing_of(item, by_group, now) for item in models]
