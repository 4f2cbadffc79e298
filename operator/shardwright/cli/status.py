"""The command ``status``: who waits for whom, since when, and the next commands.

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
from shardwright.cli.live_models import (
    Content,
    list_models,
    list_objects,
    no_such_model,
)
from shardwright.cli.model_state import ModelState, standing_of
from shardwright.cli.model_state_text import detail_lines, document, table_lines
from shardwright.cli.output import (
    clear_terminal,
    print_lines,
    print_note,
    width_of_output,
)
from shardwright.cli.outputs import print_list
from shardwright.cluster.client import Client
from shardwright.cluster.resources import PODS, STATEFUL_SETS, Resource
from shardwright.rendering.labels import MODEL
from shardwright.reporting.lines import Line, line

REFRESH_SECONDS: Final = 2.0
"""How often ``--watch`` looks; assumed: a person reads no faster, and it costs the API server three
LISTs.
"""


def status(arguments: Namespace) -> Exit:
    """Print how models stand, once or again and again."""
    cluster: Target = arguments.target
    namespace = None if arguments.all_namespaces else cluster.namespace
    if arguments.watch:
        _watch(cluster, namespace, arguments)
    now = datetime.now(UTC)
    found = _read(cluster, namespace, arguments.name, now)
    if arguments.output in {"text", "wide"}:
        print_lines(
            _lines(
                found,
                now,
                namespace,
                one=bool(arguments.name),
                wide=arguments.output == "wide",
            )
        )
        if not found:
            print_note(
                f"there is no ShardedModel in namespace {namespace}; -n names another one, "
                "-A shows those of all"
                if namespace
                else "there is no ShardedModel in any namespace"
            )
    elif arguments.output == "name":
        print_lines(line(f"shardedmodel.shardwright.io/{item.name}") for item in found)
    else:
        print_list(
            "ModelStandingList",
            [document(item, _program()) for item in found],
            arguments.output,
        )
    return Exit.PLAN


def _watch(cluster: Target, namespace: str | None, arguments: Namespace) -> None:
    """Show how models stand until somebody interrupts; if nobody looks at a terminal, only
    changes.
    """
    terminal = sys.stdout.isatty()
    before: list[ModelState] | None = None
    while True:
        now = datetime.now(UTC)
        found = _read(cluster, namespace, arguments.name, now)
        facts = [_without_times(item) for item in found]
        if terminal:
            clear_terminal()
        if terminal or facts != before:
            gap = () if before is None or terminal else (Line(),)
            print_lines(
                [
                    *gap,
                    *_lines(
                        found,
                        now,
                        namespace,
                        one=bool(arguments.name),
                        wide=arguments.output == "wide",
                    ),
                ]
            )
            sys.stdout.flush()
            before = facts
        time.sleep(REFRESH_SECONDS)


def _without_times(item: ModelState) -> ModelState:
    return replace(
        item, groups=tuple(replace(group, loading=None) for group in item.groups)
    )


def _lines(
    found: Sequence[ModelState],
    now: datetime,
    namespace: str | None,
    *,
    one: bool,
    wide: bool = False,
) -> Iterator[Line]:
    """Yield a table of all, and the whole of those that are not ready, or of the one that is asked
    for.
    """
    width = width_of_output()
    if not one:
        if found:
            yield from table_lines(
                found, now, width, namespaces=namespace is None, wide=wide
            )
        found = [item for item in found if item.ready != "True"]
    for index, item in enumerate(found):
        if index or not one:
            yield Line()
        yield from detail_lines(item, now, width, _program())


def _program() -> str:
    return program_name(sys.argv[0])


def _read(
    cluster: Target, namespace: str | None, name: str | None, now: datetime
) -> list[ModelState]:
    """Read the states of the models of a namespace (None: of all namespaces), or of one model.

    Raises:
        InputError: there is none of this name.
    """
    return cluster.ask(lambda client: _standing(client, namespace, name, now))


async def _standing(
    client: Client, namespace: str | None, name: str | None, now: datetime
) -> list[ModelState]:
    # One after another: the first to fail says why.
    models = await list_models(client, namespace)
    sets, pods = (
        await _labelled(client, STATEFUL_SETS, namespace),
        await _labelled(client, PODS, namespace),
    )
    if name:
        models = [item for item in models if item["metadata"]["name"] == name]
        if not models:
            await no_such_model(client, namespace or "", name)
    return [standing_of(item, sets, pods, now) for item in models]


async def _labelled(
    client: Client, resource: Resource, namespace: str | None
) -> list[Content] | None:
    return await unless_forbidden(
        list_objects(client, resource, namespace, labelSelector=MODEL)
    )
