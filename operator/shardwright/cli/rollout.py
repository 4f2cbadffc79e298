"""The command ``rollout``: which revisions of a model there are, and the request to run one of
them, or its spec again.

Changes no spec: it writes an annotation, and the operator does the rest. Where nothing would come
of it, it writes nothing.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.cli.changed_values import changed_values
from shardwright.cli.clusters import Target
from shardwright.cli.exits import Exit
from shardwright.cli.live_models import condition_of, no_such_model
from shardwright.cli.output import (
    print_lines,
    print_note,
    print_text,
    width_of_output,
)
from shardwright.cli.outputs import print_list
from shardwright.cli.revisions import read_sayings
from shardwright.cluster.client import MERGE_PATCH, Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.documents import to_camel
from shardwright.errors import InputError, Problem
from shardwright.planning.phrases import letters
from shardwright.reconcile.course_choice import SPEC
from shardwright.reconcile.life_rules import ROLLBACK_TO
from shardwright.reconcile.revisions import (
    OF_NOW,
    Revision,
    Saying,
    revisions_of,
)
from shardwright.reporting.lines import table
from shardwright.sinks import in_terminal

_UNSETTLED: Final = (
    ConditionType.ROLLED_BACK,
    ConditionType.ROLLOUT_STOPPED,
)

HEADER: Final = (
    "REVISION",
    "RUNS",
    "FIRST SERVED",
    "LAYOUT",
    "CHANGED",
    "IMAGE",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRevision:
    """A revision as it is shown: ``changed`` are the fields in which it differs from the one before
    it; both ``layout`` and ``changed`` are None if it cannot be read.
    """

    revision: int
    runs: bool
    kept_at: str
    layout: str | None
    changed: tuple[str, ...] | None
    image: str


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
        said = cluster.ask(lambda client: read_sayings(client, live, found))
        print_history(shown_revisions(shown, found, said), arguments.output)
        return Exit.PLAN
    if arguments.action == "retry":
        wanted = "" if serves_its_spec(live) else SPEC
        what = (
            "its spec is tried again"
            if wanted
            else "nothing to retry: it serves its spec"
        )
    else:
        number = _wanted(shown, found, arguments.to_revision)
        wanted = "" if number in _running(shown) else str(number)
        what = (
            f"goes back to revision {wanted} until its spec changes"
            if wanted
            else f"nothing to undo: revision {number} runs"
        )
    if wanted:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        _annotate(cluster, live["metadata"], {ROLLBACK_TO: f"{wanted}@{now}"})
    print_text(in_terminal(f"{namespace}/{name}: {what}"))
    return Exit.PLAN


def serves_its_spec(content: Mapping[str, Any]) -> bool:
    """Return whether all groups of a model run its spec as it is, and no revision in its place."""
    status, ready = (
        content.get("status") or {},
        condition_of(content, ConditionType.READY),
    )
    return (
        status.get("observedGeneration") == content["metadata"].get("generation")
        and (ready.get("status"), ready.get("reason")) == ("True", Reason.SERVING)
        and not any(
            condition_of(content, kind).get("status") == "True" for kind in _UNSETTLED
        )
    )


async def _live(
    client: Client,
    namespace: str,
    name: str,
) -> Mapping[str, Any]:
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


def shown_revisions(
    shown: Sequence[Mapping[str, Any]],
    found: Sequence[Revision],
    said: Mapping[str, Saying],
) -> list[PastRevision]:
    """Return revisions as they are shown, oldest first. ``shown`` are those of the status, ``said``
    what they say, by their digest.
    """
    runs = _running(shown)
    sayings = [said.get(item.digest) for item in found]
    return [
        PastRevision(
            revision=item.number,
            runs=item.number in runs,
            kept_at=item.kept_at,
            layout=letters(now.plan.layout) if now else None,
            changed=tuple(_changes(before, now)) if before and now else None,
            image=item.image,
        )
        for item, before, now in zip(found, [None, *sayings], sayings, strict=False)
    ]


def _changes(
    before: Saying,
    now: Saying,
) -> Iterator[str]:
    """Yield the fields of the spec in which a revision differs, and what differs beside it."""
    was, wanted = (
        {name: value for name, value in item.spec.items() if name not in OF_NOW}
        for item in (before, now)
    )
    for change in changed_values(was, wanted, "spec"):
        whole = change.after if change.before is None else change.before
        one_sided = change.before is None or change.after is None
        yield from _leaves(change.path, whole) if one_sided else (change.path,)
    if before.config != now.config:
        yield "the model's config"
    if before.engine_version != now.engine_version:
        yield "the engine's version"
    if before.plan.layout != now.plan.layout:
        yield "the layout"


def _leaves(
    path: str,
    value: Any,
) -> Iterator[str]:
    """Yield the fields of a part of the spec that was added or taken out as a whole."""
    if not isinstance(value, dict) or not value:
        yield path
        return
    for name, below in value.items():
        yield from _leaves(f"{path}.{name}", below)


def print_history(
    revisions: Sequence[PastRevision],
    form: str,
) -> None:
    """Print revisions, oldest first: as a table, or as a list for a program."""
    if form != "text":
        items = [
            {to_camel(name): value for name, value in asdict(item).items()}
            for item in revisions
        ]
        print_list("RevisionList", items, form)
    elif revisions:
        rows = [tuple(map(_word, astuple(item))) for item in revisions]
        print_lines(
            table(
                HEADER,
                rows,
                width=width_of_output(),
                indent="",
            )
        )
    else:
        print_note("there is no revision yet: one is kept when all groups serve")


def _word(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, tuple):
        return ", ".join(cell) or "nothing of the spec"
    return "-" if cell is None else str(cell)


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
    what = "" if number is None else f"revision {number} does not exist: "
    raise InputError(
        [
            Problem(
                code="RevisionUnknown",
                path="--to-revision",
                what=f"{what}{_there(numbers, runs)}",
            )
        ]
    )


def _there(
    numbers: Sequence[int],
    runs: frozenset[int],
) -> str:
    """Say which revisions there are."""
    if not numbers:
        return "there is none yet, as one is kept when all groups serve"
    if len(numbers) == 1:
        runs_it = ", and it runs" if numbers[0] in runs else ""
        return f"there is only revision {numbers[0]}{runs_it}"
    *others, last = numbers
    return f"there are revisions {', '.join(map(str, others))} and {last}"
