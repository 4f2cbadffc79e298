"""The command ``rollout``: which revisions of a model there are, and the request to run one of
them, or its spec again.

Changes no spec: it writes an annotation, and the operator does the rest.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.cli.clusters import Target
from shardwright.cli.exits import Exit
from shardwright.cli.live_models import no_such_model
from shardwright.cli.output import print_lines, print_note, print_text, width_of_output
from shardwright.cli.outputs import print_list
from shardwright.cluster.client import MERGE_PATCH, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.reconcile.course_choice import SPEC
from shardwright.reconcile.life_rules import ROLLBACK_TO
from shardwright.reconcile.revisions import Revision, revisions_of
from shardwright.reporting.lines import table
from shardwright.sinks import in_terminal

HEADER: Final = (
    "REVISION",
    "RUNS",
    "SERVED SINCE",
    "IMAGE",
)
FIELDS: Final = (
    "revision",
    "runs",
    "keptAt",
    "image",
)
"""What a program is told under the names of the status."""


def rollout(arguments: Namespace) -> Exit:
    """Show the revisions of a model, or ask for one of them.

    Raises:
        InputError: there is no such model or revision, or flags are of another action.
        UnreachableError: the cluster cannot be reached, or does not let us.
    """
    cluster: Target = arguments.target
    namespace, name = cluster.namespace, arguments.name
    live = cluster.ask(lambda client: _live(client, namespace, name))
    shown, found = (
        (live.get("status") or {}).get("revisions") or [],
        revisions_of(live.get("status") or {}),
    )
    if arguments.action == "history":
        print_history(shown, found, arguments.output)
        return Exit.PLAN
    wanted = (
        SPEC
        if arguments.action == "retry"
        else str(_wanted(shown, found, arguments.to_revision))
    )
    _annotate(
        cluster,
        live["metadata"],
        {ROLLBACK_TO: f"{wanted}@{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"},
    )
    what = (
        "its spec is tried again"
        if wanted == SPEC
        else f"goes back to revision {wanted} until its spec changes"
    )
    print_text(in_terminal(f"{namespace}/{name}: {what}"))
    return Exit.PLAN


async def _live(client: Client, namespace: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = await client.get(SHARDED_MODELS, namespace, name)
    return await no_such_model(client, namespace, name) if found is None else found


def _annotate(
    cluster: Target, metadata: Mapping[str, Any], annotations: Mapping[str, str]
) -> None:
    """Set annotations of exactly the ShardedModel that was read: another one of its name by now has
    another uid.
    """
    body = {"metadata": {"uid": metadata["uid"], "annotations": dict(annotations)}}
    path = SHARDED_MODELS.path(metadata["namespace"], metadata["name"])
    cluster.ask(lambda client: client.patch(SHARDED_MODELS, path, body, MERGE_PATCH))


def print_history(
    shown: Sequence[Mapping[str, Any]], found: Sequence[Revision], form: str
) -> None:
    """Print revisions, oldest first: as a table, or as a list for a program. ``shown`` are those of
    the status.
    """
    runs = _running(shown)
    rows = [_row(item, runs) for item in found]
    if form != "text":
        print_list(
            "RevisionList", [dict(zip(FIELDS, row, strict=True)) for row in rows], form
        )
    elif rows:
        print_lines(
            table(
                HEADER,
                [tuple(map(_word, row)) for row in rows],
                width=width_of_output(),
                indent="",
            )
        )
    else:
        print_note("there is no revision yet: one is kept when all groups serve")


def _row(item: Revision, runs: frozenset[int]) -> tuple[int, bool, str, str]:
    return item.number, item.number in runs, item.kept_at, item.image


def _word(cell: object) -> str:
    return ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def _running(shown: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    return frozenset(int(item["revision"]) for item in shown if item.get("runs"))


def _wanted(
    shown: Sequence[Mapping[str, Any]], found: Sequence[Revision], number: int | None
) -> int:
    """Return the number of the revision to go back to: the newest that does not run, if none is
    named.
    """
    numbers, runs = [item.number for item in found], _running(shown)
    others = [item for item in numbers if item not in runs]
    if number is None and others:
        return others[-1]
    if number in numbers:
        return number
    there = (
        f"there are {', '.join(map(str, numbers))}" if numbers else "there is none yet"
    )
    what = "a revision to go back to" if number is None else f"revision {number}"
    raise InputError(
        [
            Problem(
                code="RevisionUnknown",
                path="--to-revision",
                what=what,
                limit=f"does not exist: {there}",
            )
        ]
    )
