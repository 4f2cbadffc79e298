"""What holds of a cluster whatever has failed: pure functions over objects as they are stored, each
a list of what is broken.

Nothing here knows how the objects were read, so the same laws hold over a real API server and over
one in memory. A snapshot is every object of the cluster at one moment, each with ``kind``. Some
laws hold at any moment (:func:`at_any_moment`), some once nothing moves any more (:func:`at_rest`),
some between two moments, where nobody has asked for a change (:func:`left_alone`), and some of what
was written (:func:`of_writes`) or said (:func:`of_texts`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from shardwright.api.record import RECORD_KEY, PlanRecord, decode
from shardwright.api.resource import read_stored
from shardwright.api.settings import Settings
from shardwright.errors import InputError
from shardwright.hardware.nodes import NodeFacts, read_node, read_pod
from shardwright.pipeline.assembly import bundle_for
from shardwright.reconcile.drift import drifted_fields
from shardwright.reconcile.observed import controller_uid, object_key
from shardwright.reconcile.pod_inputs import seed_of
from shardwright.reconcile.revisions import Saying, as_now, read_revision, revisions_of
from shardwright.rendering.bundle import TEMPLATE_HASH
from shardwright.rendering.names import (
    base_name,
    generation_of,
    group_names,
    plan_configmap,
    revision_name,
)
from shardwright.rendering.render import restored
from shardwright.resolving.model import Question
from shardwright.resolving.stock import reservations_of
from shardwright.resolving.subject import resolve
from tests.support.contradictions import contradictions
from tests.support.keys import KEYS
from tests.support.parts import with_parts

Manifest: TypeAlias = dict[str, Any]
Snapshot: TypeAlias = Sequence[Manifest]

SHARDED_MODEL: Final = "ShardedModel"
CHILD_KINDS: Final = ("StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy")
"""What a ShardedModel owns and anybody may read: Secrets are nobody's to see."""

WRITES_MAX: Final = 20
"""Writes of one object in one incident: a handful of a life each, and some repetitions; a hot loop
writes this in a second. Basis: assumed.
"""


def at_any_moment(objects: Snapshot) -> list[str]:
    """Return what must never be seen, not even while something moves."""
    return [*overcommitted(objects), *mixed_groups(objects)]


def at_rest(objects: Snapshot, settings: Settings | None = None) -> list[str]:
    """Return what must not be so once nothing moves any more, with what must never be so."""
    return [
        *at_any_moment(objects),
        *unobserved(objects),
        *not_as_rendered(objects, settings or Settings()),
        *orphaned(objects),
        *stuck(objects),
    ]


def left_alone(before: Snapshot, after: Snapshot) -> list[str]:
    """Return what has changed of the models that nobody has changed meanwhile, whatever failed
    around them.
    """
    return [*disrupted(before, after), *taken_away(before, after)]


def of_writes(writes: Iterable[str], most: int = WRITES_MAX) -> list[str]:
    """I4: return the objects that were written more often than an incident needs; ``writes`` name
    verb and object.
    """
    return [
        f"I4 {write}: written {count} times, at most {most}"
        for write, count in Counter(writes).items()
        if count > most
    ]


def of_lease(objects: Snapshot, running: Collection[str]) -> list[str]:
    """I9: return what is wrong with the Lease, where these operators run: one of them holds it,
    once.
    """
    holders = [
        lease["spec"].get("holderIdentity") or ""
        for lease in _of(objects, "Lease")
        if _name(lease) == "shardwright"
    ]
    if len(holders) == 1 and holders[0] in running:
        return []
    return [f"I9 Lease shardwright: held by {holders or 'nobody'}, not by one of {sorted(running)}"]


def of_texts(texts: Mapping[str, str], canaries: Collection[str]) -> list[str]:
    """I10: return where a secret is said; ``texts`` are all that was written for people, by what
    they are.
    """
    return [
        f"I10 {where}: says a secret"
        for where, text in texts.items()
        if any(secret in text for secret in canaries)
    ]


def unobserved(objects: Snapshot) -> list[str]:
    """I1: return the models whose status is not about their current spec, or says what is not
    so.
    """
    return [
        f"I1 {_place(model)}: {what}"
        for model in _living_models(objects)
        for what in _wrong_in_status(objects, model)
    ]


def _wrong_in_status(objects: Snapshot, model: Manifest) -> Iterator[str]:
    status, generation = model.get("status") or {}, model["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        yield f"observed generation {status.get('observedGeneration')}, not {generation}"
        return
    conditions = status["conditions"]
    yield from contradictions(status)
    ready = any(
        (c["type"], c["status"], c["reason"]) == ("Ready", "True", "Serving") for c in conditions
    )
    down = [_name(item) for item in _sets_of(objects, model) if not _serves(objects, item)]
    if ready and down:
        yield f"Ready, though {', '.join(down)} do not serve"
    if (
        not ready
        and not down
        and status.get("groups")
        and status.get("readyReplicas") != len(status["groups"])
    ):
        yield (
            f"{status.get('readyReplicas')} groups ready, though all {len(status['groups'])} serve"
        )


def not_as_rendered(objects: Snapshot, settings: Settings) -> list[str]:
    """I2: return where the children of a model that has a plan are not exactly what its plan
    renders to.
    """
    return [
        f"I2 {_place(model)}: {what}"
        for model in _living_models(objects)
        for what in _unlike(objects, model, settings)
    ]


def _unlike(objects: Snapshot, model: Manifest, settings: Settings) -> Iterator[str]:
    rendered = _rendered(objects, model, settings)
    if rendered is None:
        return
    record = plan_configmap(base_name(_name(model)))
    live = {object_key(item): item for item in _children(objects, model) if _name(item) != record}
    wanted = {object_key(item): item for item in rendered if item["kind"] in CHILD_KINDS}
    yield from (f"{' '.join(key)} is missing" for key in sorted(wanted.keys() - live.keys()))
    yield from (f"{' '.join(key)} is one too many" for key in sorted(live.keys() - wanted.keys()))
    for key in sorted(wanted.keys() & live.keys()):
        for path in drifted_fields(wanted[key], live[key]):
            yield f"{' '.join(key)}: {path} is not as rendered"


def _rendered(
    objects: Snapshot, model: Manifest, settings: Settings
) -> Sequence[Mapping[str, Any]] | None:
    """Return the objects of a model's plan of record; None without one, or where nothing is to be
    as rendered.
    """
    record, spec = record_of(objects, model), model["spec"]
    if record is None or spec.get("paused") or spec.get("mode") == "PlanOnly":
        return None
    try:
        former = _former(objects, model, record)
        subject = resolve(_question(model, record, settings, former))
        if subject.input_hash != record.input_hash:
            return None  # the plan in force is that of an earlier spec
        sets, base = _sets_of(objects, model), base_name(_name(model))
        seed, pods = (
            seed_of(KEYS, subject.deployment.owner, sets),
            former.pods if former else None,
        )
        again = (
            restored(pods, former.plan, record.plan, subject.deployment)
            if former and pods
            else None
        )
        deployment = with_parts(
            subject.deployment, sought=record.sought, secret_seed=seed, kept=again
        )
        made = [generation_of(_name(item)) for item in sets]
        names = group_names(base, record.plan.group_numbers)
        latest = [
            max((generation for group, generation in made if group == name), default=0)
            for name in names
        ]
        return bundle_for(
            replace(subject, deployment=deployment), record.plan, generations=tuple(latest)
        ).objects
    except InputError:
        return None


def _former(objects: Snapshot, model: Manifest, record: PlanRecord) -> Saying | None:
    """Return what the revision says that is run, None where the spec is."""
    named = revisions_of(model.get("status") or {})
    for revision in named if record.rollback else ():
        name = revision_name(base_name(_name(model)), revision.digest)
        content = next(
            (item for item in _of(objects, "ControllerRevision") if _name(item) == name), None
        )
        said = read_revision(content, model["metadata"]["uid"], revision)
        if record.rollback and revision.hash == record.rollback.to and isinstance(said, Saying):
            return said
    return None


def _question(
    model: Manifest, record: PlanRecord, settings: Settings, former: Saying | None
) -> Question:
    """Return what a model is asked: what its spec says or, where it has gone back, what the
    revision says that is run.
    """
    if former is None:
        return Question(
            resource=read_stored(model), kept_version=record.engine_version, settings=settings
        )
    resource = read_stored(json.loads(as_now(former, model)))
    return Question(
        resource=resource,
        config_text=former.config,
        kept_version=former.engine_version,
        settings=settings,
    )


def orphaned(objects: Snapshot) -> list[str]:
    """I3: return the children whose model is not there."""
    models = {model["metadata"]["uid"] for model in _of(objects, SHARDED_MODEL)}
    return [
        f"I3 {item['kind']} {_place(item)}: its ShardedModel is gone"
        for item in objects
        if _owner_kind(item) == SHARDED_MODEL and controller_uid(item) not in models
    ]


def disrupted(before: Snapshot, after: Snapshot) -> list[str]:
    """I5: return the pods that have gone, or are going, of models that are asked for what they were
    asked for before.
    """
    now = {
        pod["metadata"]["uid"]
        for pod in _of(after, "Pod")
        if "deletionTimestamp" not in pod["metadata"]
    }
    return [
        f"I5 Pod {_place(pod)}: is gone or going"
        for model in _untouched(before, after)
        for item in _sets_of(before, model)
        for pod in _members(before, item)
        if pod["metadata"]["uid"] not in now
    ]


def taken_away(before: Snapshot, after: Snapshot) -> list[str]:
    """I8: return the objects and places that models have lost whose spec is the same, and that are
    there.
    """
    now = {item["metadata"]["uid"] for item in after}
    return [
        what for model in _untouched(before, after) for what in _lost(before, after, model, now)
    ]


def _lost(
    before: Snapshot, after: Snapshot, model: Manifest, now: Collection[str]
) -> Iterator[str]:
    for item in _children(before, model):
        if item["metadata"]["uid"] not in now:
            yield (
                f"I8 {item['kind']} {_place(item)}: is gone, though {_name(model)} is there and "
                "unchanged"
            )
    then, later = record_of(before, model), record_of(after, model)
    if then and (later is None or later.plan.groups != then.plan.groups):
        yield (
            f"I8 {_place(model)}: planned on {later and later.plan.groups}, before on "
            f"{then.plan.groups}"
        )


def stuck(objects: Snapshot) -> list[str]:
    """I6: return what is being deleted, and waits for a finalizer of nobody else's and for no node
    that does not answer.
    """
    facts = {
        found.name: found
        for node in _of(objects, "Node")
        if isinstance(found := read_node(node), NodeFacts)
    }
    silent = {name for name, found in facts.items() if not found.ready}
    return [
        f"I6 {item['kind']} {_place(item)}: still being deleted"
        for item in objects
        if "deletionTimestamp" in item["metadata"]
        and not _waits_for_others(item)
        and (item.get("spec") or {}).get("nodeName") not in silent
    ]


def _waits_for_others(item: Manifest) -> bool:
    return any("shardwright" not in name for name in item["metadata"].get("finalizers") or ())


def overcommitted(objects: Snapshot) -> list[str]:
    """I7: return the nodes of which pods hold, or plans keep, more GPUs than there are."""
    facts = {
        found.name: found
        for node in _of(objects, "Node")
        if isinstance(found := read_node(node), NodeFacts)
    }
    held = Counter[str]()
    for pod in _of(objects, "Pod"):
        for usage in read_pod(pod):
            held[usage.node] += usage.gpus
    kept = Counter[str]()
    for model in _living_models(objects):
        record = record_of(objects, model) if model["spec"].get("mode") != "PlanOnly" else None
        for item in reservations_of(("", _name(model)), record.plan) if record else ():
            kept[item.node] += item.gpus
    return [
        f"I7 Node {name}: {gpus} GPUs {how} of {facts[name].gpus}"
        for how, counted in (("held", held), ("planned", kept))
        for name, gpus in sorted(counted.items())
        if name in facts and gpus > facts[name].gpus
    ]


def mixed_groups(objects: Snapshot) -> list[str]:
    """Return the groups whose pods are of several templates: ranks of two revisions must never
    meet.
    """
    return [
        f"StatefulSet {_place(item)}: pods of {len(hashes)} templates"
        for item in _of(objects, "StatefulSet")
        if _owner_kind(item) == SHARDED_MODEL
        and len(
            hashes := {
                (pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH)
                for pod in _members(objects, item)
            }
        )
        > 1
    ]


def record_of(objects: Snapshot, model: Manifest) -> PlanRecord | None:
    """Return the plan of record of a model, None where there is none that can be read."""
    name = plan_configmap(base_name(_name(model)))
    for item in _children(objects, model):
        if item["kind"] == "ConfigMap" and _name(item) == name:
            found = decode((item.get("data") or {}).get(RECORD_KEY, ""))
            return found if isinstance(found, PlanRecord) else None
    return None


def _of(objects: Snapshot, kind: str) -> list[Manifest]:
    return [item for item in objects if item["kind"] == kind]


def _name(item: Manifest) -> str:
    return str(item["metadata"]["name"])


def _place(item: Manifest) -> str:
    return f"{item['metadata'].get('namespace', '')}/{_name(item)}"


def _living_models(objects: Snapshot) -> list[Manifest]:
    return [
        model
        for model in _of(objects, SHARDED_MODEL)
        if "deletionTimestamp" not in model["metadata"]
    ]


def _untouched(before: Snapshot, after: Snapshot) -> list[Manifest]:
    """Return the models of before that are there, of the same spec."""
    now = {
        model["metadata"]["uid"]: model["metadata"]["generation"] for model in _living_models(after)
    }
    return [
        m
        for m in _living_models(before)
        if now.get(m["metadata"]["uid"]) == m["metadata"]["generation"]
    ]


def _children(objects: Snapshot, model: Manifest) -> list[Manifest]:
    return [
        item
        for item in objects
        if item["kind"] in CHILD_KINDS and controller_uid(item) == model["metadata"]["uid"]
    ]


def _sets_of(objects: Snapshot, model: Manifest) -> list[Manifest]:
    return [item for item in _children(objects, model) if item["kind"] == "StatefulSet"]


def _members(objects: Snapshot, stateful_set: Manifest) -> list[Manifest]:
    return [
        pod for pod in _of(objects, "Pod") if controller_uid(pod) == stateful_set["metadata"]["uid"]
    ]


def _owner_kind(item: Manifest) -> str:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def _serves(objects: Snapshot, stateful_set: Manifest) -> bool:
    wanted = stateful_set["spec"].get("replicas", 1)
    pods = _members(objects, stateful_set)
    return bool(wanted) and len(pods) == wanted and all(map(_is_ready, pods))


def _is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return (
        any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        and "deletionTimestamp" not in pod["metadata"]
    )
