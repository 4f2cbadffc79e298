"""The command ``rollout``: which revisions of a model there are, and the request to run one of them, or its spec again."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.cli.clusters import Cluster
from shardwright.cli.connecting import connection_of
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_json, print_text
from shardwright.cluster.client import MERGE_PATCH
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.reconcile.course import SPEC
from shardwright.reconcile.revisions import Revision, revisions_of
from shardwright.reconcile.rules import ROLLBACK_TO
from shardwright.reporting.lines import table
from shardwright.sinks import in_terminal

HEADER: Final = ("REVISION", "RUNS", "SERVED SINCE", "IMAGE")


def rollout(arguments: Namespace) -> Exit:
    """Show the revisions of a model, or ask for one of them.

    Raises:
        InputError: there is no such model, or no such revision.
        UnreachableError: the cluster cannot be reached, or does not let us.
    """
    cluster = Cluster(connection=connection_of(arguments))
    namespace, name = arguments.namespace or cluster.namespace, arguments.name
    live = cluster.ask(lambda client: client.get(SHARDED_MODELS, namespace, name))
    if live is None:
        raise InputError([Problem(code="NotFound", what=f"ShardedModel {namespace}/{name}", limit="does not exist")])
    shown, found = (live.get("status") or {}).get("revisions") or [], revisions_of(live.get("status") or {})
    if arguments.action == "history":
        _print(shown, found, arguments.output)
        return Exit.PLAN
    wanted = SPEC if arguments.action == "retry" else str(_wanted(shown, found, arguments.to_revision))
    _annotate(cluster, live["metadata"], {ROLLBACK_TO: f"{wanted}@{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})
    what = "its spec is tried again" if wanted == SPEC else f"goes back to revision {wanted} until its spec changes"
    print_text(in_terminal(f"{namespace}/{name}: {what}"))
    return Exit.PLAN


def _annotate(cluster: Cluster, metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Set annotations of exactly the ShardedModel that was read: another one of its name by now has another uid."""
    body = {"metadata": {"uid": metadata["uid"], "annotations": dict(annotations)}}
    path = SHARDED_MODELS.path(metadata["namespace"], metadata["name"])
    cluster.ask(lambda client: client.patch(SHARDED_MODELS, path, body, MERGE_PATCH))


def _print(shown: Sequence[Mapping[str, Any]], found: Sequence[Revision], output: str) -> None:
    runs = _running(shown)
    if output == "json":
        names = ("revision", "runs", "keptAt", "image")
        print_json([dict(zip(names, _row(item, runs), strict=True)) for item in found])
        return
    rows = [tuple(_word(cell) for cell in _row(item, runs)) for item in found]
    for line in table(HEADER, rows, width=200, indent=""):
        print_text(in_terminal(line.plain()))


def _row(item: Revision, runs: frozenset[int]) -> tuple[int, bool, str, str]:
    return item.number, item.number in runs, item.kept_at, item.image


def _word(cell: object) -> str:
    return ("yes" if cell else "no") if isinstance(cell, bool) else str(cell)


def _running(shown: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    return frozenset(int(item["revision"]) for item in shown if item.get("runs"))


def _wanted(shown: Sequence[Mapping[str, Any]], found: Sequence[Revision], number: int | None) -> int:
    """Return the number of the revision to go back to: the newest that does not run, where none is named."""
    numbers, runs = [item.number for item in found], _running(shown)
    others = [item for item in numbers if item not in runs]
    if number is None and others:
        return others[-1]
    if number in numbers:
        return number
    there = f"there are {', '.join(map(str, numbers))}" if numbers else "there is none yet"
    what = "a revision to go back to" if number is None else f"revision {number}"
    raise InputError([Problem(code="RevisionUnknown", path="--to-revision", what=what, limit=f"does not exist: {there}")])
