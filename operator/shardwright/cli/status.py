"""The command ``status``: what models wait for, why their groups failed, and the next commands.

Writes nothing.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from shardwright.cli.arguments import program_name
from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.exits import Exit
from shardwright.cli.live_models import list_models, list_objects, no_such_model
from shardwright.cli.model_state import ModelState, read_pods, standing_of
from shardwright.cli.model_state_text import detail_lines, document, table_lines
from shardwright.cli.output import clear_terminal, print_lines, print_note, width_of_output
from shardwright.cli.outputs import print_list
from shardwright.cluster.client import Client
from shardwright.cluster.resources import PODS, STATEFUL_SETS
from shardwright.rendering.labels import MODEL
from shardwright.reporting.lines import Line, line

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
