"""Which plan of record is believed? One that we have signed, unless a newer one was signed since,
or one that agrees with all other evidence.

The serial of the newest stands in the resource's status, which none of its users may write, so an
earlier record that somebody puts back is recognized. A record may lack our signature: it was
written without a key, the key was lost, or somebody edited it. Then it counts if this process
remembers it, or if it agrees with the spec, the nodes, the StatefulSets and the status. Without a
key every record is judged that way. In place of a refused record the remembered one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shardwright.api.plan_status import plan_status
from shardwright.api.record import PlanRecord
from shardwright.engines.vllm.releases import kept_default
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.layouts.layout import MOST_REPLICAS
from shardwright.planning.report import Plan
from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.record_object import StoredRecord, not_ours, record_key
from shardwright.rendering import pod_resources
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import VERSION_LABEL
from shardwright.rendering.names import base_name, generation_of, group_names
from shardwright.rendering.place import SOUGHT
from shardwright.resolving.subject import Subject

SERIAL: Final = "recordSerial"
"""Field of the status that says which plan of record is the newest; absent as long as none was
signed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvidence:
    """The evidence that a plan of record is compared with.

    ``signs``: there is a key, so our records are signed. ``serial`` is that of the newest record
    (0: none was ever signed). ``remembered`` is the newest that this process has believed.
    ``shown`` is ``status.plan``. ``observed`` are the resource's present objects. ``nodes`` include
    those in provisioning. ``subject`` is the resolved spec, None if unknown.
    """

    owner: Owner
    signs: bool
    observed: Observed
    serial: int = 0
    remembered: PlanRecord | None = None
    shown: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, NodeFacts | NodeExclusion]
    subject: Subject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """The plan of record that counts, and what is wrong with the stored one, or None.

    A record of ours that cannot be read, as a later release wrote it, is a problem.
    """

    record: PlanRecord | Problem | None
    refused: Problem | None = None


def believed(stored: StoredRecord | None, known: RecordEvidence) -> Believed:
    """Return which plan of record counts."""
    if stored is None:
        return Believed(record=None)
    if stored.signed:
        return _signed(stored.said, known)
    strange = _strange(stored, known)
    # The memory of this process goes before every judgement of a strange text (ADR 12).
    if strange and known.remembered:
        return _refused(known, strange)
    return _unverified(stored.said, known, strange)


def kept_version(
    stored: StoredRecord | None, remembered: PlanRecord | None, serial: int
) -> str | None:
    """Return the engine's default version in a plan of record, or None if it is the newest known.

    A record without our signature counts only if nothing was ever signed.
    """
    said = stored.said if stored and (stored.signed or not serial) else None
    # A text that was seen signed goes first: the stored one may have been edited since.
    record = remembered or (said if isinstance(said, PlanRecord) else None)
    return kept_default(record.default_of_spec) if record else None


def _strange(stored: StoredRecord, known: RecordEvidence) -> str | None:
    # None: it may be older than the key.
    if stored.signed is False:
        return "has a signature that is not the operator's"
    return "is not signed" if known.signs and known.serial else None


def _signed(said: PlanRecord | Problem, known: RecordEvidence) -> Believed:
    # One above it is newer than the status: a process ended between the two writes (ADR 12).
    if isinstance(said, PlanRecord) and said.serial < known.serial:
        return _refused(known, f"is number {said.serial}, and the newest is number {known.serial}")
    return Believed(record=said)


def _unverified(said: PlanRecord | Problem, known: RecordEvidence, strange: str | None) -> Believed:
    if isinstance(said, Problem):
        return _refused(known, strange) if strange else Believed(record=said)
    # The same as we have written: only its signature was taken away.
    if said == known.remembered:
        return Believed(record=known.remembered)
    contradiction = _contradiction(said, known)
    if contradiction is None and (_bears_out(said.plan, known) or not known.signs):
        # Anybody may have written its serial.
        taken = replace(said, serial=known.serial)
        return Believed(record=taken, refused=_problem(known, strange) if strange else None)
    if known.signs and not any(_stateful_sets(known)):
        # nothing runs by it, so nothing is lost with it
        return _refused(known, strange) if strange else Believed(record=None)
    return _refused(known, contradiction or strange or "is not signed")


def _refused(known: RecordEvidence, limit: str) -> Believed:
    return Believed(record=known.remembered, refused=_problem(known, limit))


def _problem(known: RecordEvidence, limit: str) -> Problem:
    return not_ours(record_key(known.owner)[1], limit)


def _contradiction(record: PlanRecord, known: RecordEvidence) -> str | None:
    plan, layout = record.plan, record.plan.layout
    if (
        layout.gpus_per_replica != plan.nodes_per_replica * plan.gpus_per_node
        or layout.replicas != len(plan.groups)
    ):
        return (
            f"says {layout.gpus_per_replica} GPUs for {plan.nodes_per_replica} x "
            f"{plan.gpus_per_node}"
        )
    if any(len(set(nodes)) != plan.nodes_per_replica for nodes in plan.groups):
        return f"has a group that is not on {plan.nodes_per_replica} nodes"
    return (
        _beside_spec(record, known.subject)
        or _beside_nodes(plan, known)
        or _beside_sets(record, known)
        or _beside_generations(record, known)
        or _beside_status(record, known)
    )


def _beside_spec(record: PlanRecord, subject: Subject | None) -> str | None:
    if subject is None or record.input_hash != subject.input_hash:
        return None
    space, plan, layout = subject.request.space, record.plan, record.plan.layout
    wished = subject.intent.replicas
    if plan.wanted > (space.replicas or MOST_REPLICAS if wished is None else wished):
        return f"is for {plan.wanted} groups, more than the spec asks for"
    if layout.gpus > (space.max_gpus or layout.gpus):
        return f"has {layout.gpus} GPUs, more than the spec allows"
    pinned = {
        "tensor": space.tensor,
        "pipeline": space.pipeline,
        "expert": space.expert,
        "context": space.context,
    }
    differs = (
        name
        for name, degree in pinned.items()
        if degree is not None and degree != getattr(layout, name)
    )
    return next((f"has another {name} degree than the spec" for name in differs), None)


def _beside_nodes(plan: Plan, known: RecordEvidence) -> str | None:
    # Where a group stands, its StatefulSet says what it has: a node that loses a GPU, or is away,
    # is for the plan to leave.
    standing = {node for live in _stateful_sets(known).values() for node in planned_nodes(live)}
    for name in {node for group in plan.groups for node in group} - standing:
        node = known.nodes.get(name)
        if node is None:
            return f"names node {name}, which does not exist"
        # An excluded node says nothing of its GPUs, so it contradicts nothing.
        if not isinstance(node, NodeFacts):
            continue
        if node.resource != plan.resource or node.gpus < plan.gpus_per_node:
            return (
                f"wants {plan.gpus_per_node} {plan.resource} of node {name}, which has {node.gpus}"
                f" {node.resource}"
            )
        if node.claimed != plan.claimed:
            return f"requests the GPUs of node {name} in a way that pods cannot"
    return None


def _beside_sets(record: PlanRecord, known: RecordEvidence) -> str | None:
    # A StatefulSet that ends, or is to have no pods, is on its way elsewhere. A group on nodes in
    # provisioning is bound to none by name.
    places = _places(record.plan, known.owner)
    version = record.engine_version
    roots = group_names(base_name(known.owner.name), record.plan.group_numbers)
    seeking = {
        roots[sought.group]: str(sought.number)
        for sought in record.sought
        if sought.group < len(roots)
    }
    for root, live in _stateful_sets(known).items():
        if live["spec"].get("replicas") == 0 or "deletionTimestamp" in live["metadata"]:
            continue
        sought = (live["spec"]["template"]["metadata"].get("annotations") or {}).get(SOUGHT)
        if seeking.get(root) != sought:
            return f"has StatefulSet {live['metadata']['name']} ask for nodes in another way"
        if planned_nodes(live) != places.get(root) and sought is None:
            return f"has StatefulSet {live['metadata']['name']} on other nodes"
        if (
            version
            and live["spec"]["template"]["metadata"]["labels"].get(VERSION_LABEL, version)
            != version
        ):
            return f"has another engine version than StatefulSet {live['metadata']['name']}"
        if not _has_devices(record.plan, live):
            return f"has other devices for StatefulSet {live['metadata']['name']}"
    return None


def _beside_generations(record: PlanRecord, known: RecordEvidence) -> str | None:
    stands = (generation_of(live["metadata"]["name"]) for live in _stateful_sets(known).values())
    standing = dict(stands)
    roots = group_names(base_name(known.owner.name), record.plan.group_numbers)
    planned = dict(zip(roots, record.generations, strict=False))
    later = (root for root, number in standing.items() if planned.get(root, 0) > number)
    return next((f"has a later generation of {root} than there is" for root in later), None)


def _bears_out(plan: Plan, known: RecordEvidence) -> bool:
    places, lives = _places(plan, known.owner), _stateful_sets(known).items()
    return any(
        planned_nodes(live) == places.get(root) and _has_devices(plan, live) for root, live in lives
    )


def _places(plan: Plan, owner: Owner) -> dict[str, frozenset[str]]:
    roots = group_names(base_name(owner.name), plan.group_numbers)
    return {root: frozenset(nodes) for root, nodes in zip(roots, plan.groups, strict=True)}


def _has_devices(plan: Plan, live: KubernetesObject) -> bool:
    wanted = {**pod_resources.requested(plan), **{name: str(count) for name, count in plan.rdma}}
    found = [item.get("resources") or {} for item in live["spec"]["template"]["spec"]["containers"]]
    # Any container: sidecars that a webhook has injected ask for no devices.
    return any(
        _devices(item) == wanted and _claims(item) == pod_resources.names_of(plan) for item in found
    )


def _claims(resources: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(item.get("name")) for item in resources.get("claims") or ())


def _devices(resources: Mapping[str, Any]) -> dict[str, Any]:
    # Extended resources alone have a domain in their names.
    return {name: count for name, count in (resources.get("limits") or {}).items() if "/" in name}


def _beside_status(record: PlanRecord, known: RecordEvidence) -> str | None:
    try:
        would_show = plan_status(record.report())
    # Whoever edits a record can put in numbers that cannot be shown: infinite, or divided by zero.
    except (ValueError, ArithmeticError):
        return "has values that no plan has"
    if not known.serial or "layout" not in known.shown:
        return None
    differs = (
        name
        for name in ("layout", "resource", "memory", "limits")
        if _without_replicas(known.shown, name) != _without_replicas(would_show, name)
    )
    return next((f"has another {name} than the status" for name in differs), None)


def _without_replicas(shown: Mapping[str, Any], name: str) -> object:
    # Plans of different sizes compare equal.
    part = shown.get(name)
    return (
        {key: value for key, value in part.items() if key != "replicas"}
        if isinstance(part, Mapping)
        else part
    )


def _stateful_sets(known: RecordEvidence) -> dict[str, KubernetesObject]:
    # Of each group the latest generation.
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for name, live in known.observed.sets_of(known.owner.uid).items():
        index, number = generation_of(name)
        if number >= found.get(index, (0, live))[0]:
            found[index] = number, live
    return {root: live for root, (_, live) in found.items()}
