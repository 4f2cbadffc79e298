"""The command ``rollout``: a model's revisions, and the request to run one of them or its spec
again.

It changes no spec: it writes an annotation, and the operator does the rest. If that would have no
effect, it writes nothing.

Earlier revisions of a ShardedModel in a cluster: what they say, and how they would run now.

One that was altered since it was kept has the reason in place of its spec.
"""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.api.conditions import ConditionType, Reason
from shardwright.api.settings import Settings
from shardwright.cli.changed_values import changed_values
from shardwright.cli.clusters import Target, unless_forbidden
from shardwright.cli.exits import Exit
from shardwright.cli.live_models import LiveModel, condition_of, owner_of, read_model
from shardwright.cli.output import print_lines, print_list, print_note, print_text, width_of_output
from shardwright.cluster.client import MERGE_PATCH, Client
from shardwright.cluster.resources import CONTROLLER_REVISIONS, SHARDED_MODELS
from shardwright.errors import InputError, Problem
from shardwright.pipeline.documents import to_camel
from shardwright.planning.phrases import letters
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.revisions import (
    OF_NOW,
    Former,
    Revision,
    Saying,
    as_kept,
    as_now,
    read_revision,
    revisions_of,
)
from shardwright.reconcile.rollback import SPEC, request_in
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import base_name, revision_name
from shardwright.reporting.lines import table
from shardwright.resolving.subject import Administration, resolve_stored
from shardwright.sinks import in_terminal


async def read_formers(
    client: Client, model: LiveModel, spec: Mapping[str, Any], settings: Settings
) -> dict[str, Former]:
    """Return, by hash, the revisions that a model may go back to or has gone back to; none if none
    is asked for.

    ``spec`` says how groups live and how many there are.

    Raises:
        ApiError: one may not be read.
    """
    goes_back = ROLLBACK_TO in (model.content["metadata"].get("annotations") or {})
    if not goes_back and not (model.record and model.record.rollback):
        return {}
    live = {**model.content, "spec": spec}
    revisions = revisions_of(model.content.get("status") or {})
    return {
        revision.hash: await _former(client, model, live, revision, settings)
        for revision in revisions
    }


async def read_sayings(
    client: Client, content: KubernetesObject, revisions: Sequence[Revision]
) -> dict[str, Saying]:
    """Return what a model's revisions say, by digest; unreadable and altered ones are left out."""
    owner = owner_of(content)
    found = {
        revision.digest: await unless_forbidden(_said(client, owner, revision))
        for revision in revisions
    }
    return {digest: said for digest, said in found.items() if isinstance(said, Saying)}


async def _said(client: Client, owner: Owner, revision: Revision) -> Saying | Problem:
    content = await client.get(
        CONTROLLER_REVISIONS, owner.namespace, revision_name(base_name(owner.name), revision.digest)
    )
    return read_revision(content, owner.uid, revision)


async def _former(
    client: Client, model: LiveModel, live: KubernetesObject, revision: Revision, settings: Settings
) -> Former:
    said = await _said(client, model.owner, revision)
    if isinstance(said, Problem):
        return Former(hash=revision.hash, subject=(said,))
    asks = json.loads(as_now(said, live))
    subject = resolve_stored(
        asks, said.config, Administration(settings=settings), said.engine_version
    )
    return as_kept(
        Former(hash=revision.hash, subject=subject, plan=said.plan, pods=said.pods), revision
    )


_UNSETTLED: Final = (ConditionType.ROLLED_BACK, ConditionType.ROLLOUT_STOPPED)

HEADER: Final = ("REVISION", "RUNS", "FIRST SERVED", "LAYOUT", "CHANGED", "IMAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRevision:
    """A revision as shown; ``changed`` are the fields that differ from the one before, None like
    ``layout`` if it cannot be read.
    """

    revision: int
    runs: bool
    kept_at: str
    layout: str | None
    changed: tuple[str, ...] | None
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request to a model; ``stands`` says whether it already is where it would go."""

    wanted: str
    stands: bool
    begins: str
    nothing: str


def rollout(arguments: Namespace) -> Exit:
    """Print the revisions of a model, or ask for one of them.

    Raises:
        InputError: there is no such model or revision, or a flag belongs to another action.
        UnreachableError: the cluster cannot be reached, or forbids it.
    """
    cluster: Target = arguments.target
    namespace, name = cluster.namespace, arguments.name
    live = cluster.ask(lambda client: read_model(client, namespace, name))
    if arguments.action == "history":
        shown, found = _revisions(live.content)
        said = cluster.ask(lambda client: read_sayings(client, live.content, found))
        print_history(shown_revisions(shown, found, said), arguments.output)
        return Exit.PLAN
    request = (
        _retrial(live.content)
        if arguments.action == "retry"
        else _going_back(live.content, arguments.to_revision)
    )
    sends = not (request.stands and is_settled(live))
    if sends:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        wanted = {ROLLBACK_TO: f"{request.wanted}@{now}"}
        _annotate(cluster, live.content["metadata"], wanted)
    what = request.begins if sends else request.nothing
    print_text(in_terminal(f"{namespace}/{name}: {what}"))
    return Exit.PLAN


def _retrial(content: KubernetesObject) -> _Request:
    return _Request(
        wanted=SPEC,
        stands=serves_its_spec(content),
        begins="its spec is tried again",
        nothing="nothing to retry: it serves its spec",
    )


def _going_back(content: KubernetesObject, to: int | None) -> _Request:
    shown, found = _revisions(content)
    # An edit that is not reconciled yet replaces whatever runs.
    runs = _running(shown) if _is_looked_at(content) else frozenset()
    number = _wanted(found, runs, to)
    return _Request(
        wanted=str(number),
        stands=number in runs,
        begins=f"goes back to revision {number} until its spec changes",
        nothing=f"nothing to undo: revision {number} runs",
    )


def _revisions(content: KubernetesObject) -> tuple[Sequence[Mapping[str, Any]], Sequence[Revision]]:
    status = content.get("status") or {}
    return status.get("revisions") or [], revisions_of(status)


def is_settled(live: LiveModel) -> bool:
    """Return whether the operator has reconciled a model's spec and answered its last request.
    Until then its status says nothing about future groups.
    """
    asked = request_in(live.content["metadata"].get("annotations") or {})
    answered = live.record.answered if live.record else ""
    return _is_looked_at(live.content) and asked == answered


def _is_looked_at(content: KubernetesObject) -> bool:
    observed = (content.get("status") or {}).get("observedGeneration")
    return bool(observed == content["metadata"].get("generation"))


def serves_its_spec(content: KubernetesObject) -> bool:
    """Return whether all groups run the last reconciled spec, and no revision in its place."""
    ready = condition_of(content, ConditionType.READY)
    return (ready.get("status"), ready.get("reason")) == ("True", Reason.SERVING) and not any(
        condition_of(content, kind).get("status") == "True" for kind in _UNSETTLED
    )


def _annotate(cluster: Target, metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
    """Set annotations of the ShardedModel that was read: a new one of its name has another uid."""
    body = {"metadata": {"uid": metadata["uid"], "annotations": dict(annotations)}}
    path = SHARDED_MODELS.path(metadata["namespace"], metadata["name"])
    cluster.ask(lambda client: client.patch(SHARDED_MODELS, path, body, MERGE_PATCH))


def shown_revisions(
    shown: Sequence[Mapping[str, Any]], found: Sequence[Revision], said: Mapping[str, Saying]
) -> list[PastRevision]:
    """Return revisions for display, oldest first; ``said`` is their content by digest."""
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


def _changes(before: Saying, now: Saying) -> Iterator[str]:
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
    replicas = now.plan.layout.replicas  # a rollback keeps the present number
    if replace(before.plan.layout, replicas=replicas) != now.plan.layout:
        yield "the layout"


def _leaves(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield path
        return
    for name, below in value.items():
        yield from _leaves(f"{path}.{name}", below)


def print_history(revisions: Sequence[PastRevision], form: str) -> None:
    """Print revisions, oldest first: as a table, or as a list for a program."""
    if form != "text":
        items = [
            {to_camel(name): value for name, value in asdict(item).items()} for item in revisions
        ]
        print_list("RevisionList", items, form)
    elif revisions:
        rows = [tuple(map(_word, astuple(item))) for item in revisions]
        print_lines(table(HEADER, rows, width=width_of_output(), indent=""))
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


def _wanted(found: Sequence[Revision], runs: frozenset[int], number: int | None) -> int:
    """Return the number of the revision to go back to, by default the newest that does not run."""
    numbers = [item.number for item in found]
    others = [item for item in numbers if item not in runs]
    if number is None and others:
        return others[-1]
    if number in numbers:
        return number
    what = "" if number is None else f"revision {number} does not exist: "
    raise InputError(
        [
            Problem(
                code="RevisionUnknown", path="--to-revision", what=f"{what}{_there(numbers, runs)}"
            )
        ]
    )


def _there(numbers: Sequence[int], runs: frozenset[int]) -> str:
    if not numbers:
        return "there is none yet, as one is kept when all groups serve"
    if len(numbers) == 1:
        runs_it = ", and it runs" if numbers[0] in runs else ""
        return f"there is only revision {numbers[0]}{runs_it}"
    *others, last = numbers
    return f"there are revisions {', '.join(map(str, others))} and {last}"
