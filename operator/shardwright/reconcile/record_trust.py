"""Which plan of record is believed: what we have signed, in the order in which we did, and what agrees with all else.

The serial of the newest one stands in the status of the resource, which none of its users may write: an earlier record that
somebody puts back is told by it. Records of releases before there were signatures are taken over once, where they agree with the
spec, the nodes and the StatefulSets that stand. Where there is no key, nothing is signed, and every record is judged like those.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.planning.report import Plan
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid
from shardwright.reconcile.record_object import StoredRecord, not_ours, record_key
from shardwright.reconcile.rollout import planned_nodes
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import base_name, generation_of, group_name
from shardwright.resolving.subject import Subject

SERIAL: Final = "recordSerial"
"""Field of the status that says which plan of record is the newest; absent as long as none was signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a plan of record is held against.

    Args:
        owner: Whose it is.
        signs: Whether there is a key, so that what we write is signed.
        serial: Which record is the newest, 0: none was signed so far.
        remembered: The one that this process has believed last; None where it has seen none.
        observed: What there is of the resource.
        nodes: Facts of the nodes that the record names.
        subject: What the spec resolves to, None where that is not known.
    """

    owner: Owner
    signs: bool
    observed: Observed
    serial: int = 0
    remembered: PlanRecord | None = None
    nodes: Mapping[str, NodeFacts | NodeExclusion]
    subject: Subject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """The plan of record that counts, and why the one that is stored does not (None: it does).

    A record that cannot be read although it is ours, as a later release has written it, is a problem.
    """

    record: PlanRecord | Problem | None
    refused: Problem | None = None


def believed(stored: StoredRecord | None, known: Known) -> Believed:
    """Return which plan of record counts."""
    if stored is None:
        return Believed(record=None)
    if stored.signed:
        return _signed(stored.said, known)
    if stored.signed is False and isinstance(stored.said, Problem):
        return Believed(record=known.remembered, refused=stored.said)
    if known.signs and known.serial:
        return _refused(known, "is not signed")
    return _unsigned(stored.said, known)


def _signed(said: PlanRecord | Problem, known: Known) -> Believed:
    if isinstance(said, PlanRecord) and said.serial < known.serial:
        return _refused(known, f"is number {said.serial}, and the newest is number {known.serial}")
    return Believed(record=said)


def _unsigned(said: PlanRecord | Problem, known: Known) -> Believed:
    """Judge a record that bears no signature because there was no key when it was written."""
    if isinstance(said, Problem):
        return Believed(record=said)
    if said == known.remembered:
        return Believed(record=replace(said, serial=max(1, said.serial)))
    stands = any(_stateful_sets(known))
    contradiction = _contradiction(said, known)
    if contradiction is None and (stands or not known.signs):
        return Believed(record=replace(said, serial=max(1, said.serial)))
    if not stands and known.signs:
        return Believed(record=None)  # nothing runs by it, so nothing is lost with it
    return _refused(known, contradiction or "is not signed")


def _refused(known: Known, limit: str) -> Believed:
    return Believed(record=known.remembered, refused=not_ours(record_key(known.owner)[1], limit))


def _contradiction(record: PlanRecord, known: Known) -> str | None:
    """Return what a record says that cannot be, None where it agrees with all else."""
    plan, layout = record.plan, record.plan.layout
    if layout.gpus_per_replica != plan.nodes_per_replica * plan.gpus_per_node or layout.replicas != len(plan.groups):
        return f"says {layout.gpus_per_replica} GPUs for {plan.nodes_per_replica} x {plan.gpus_per_node}"
    if any(len(set(nodes)) != plan.nodes_per_replica for nodes in plan.groups):
        return f"has a group that is not on {plan.nodes_per_replica} nodes"
    return _beside_spec(record, known.subject) or _beside_nodes(plan, known) or _beside_sets(plan, known)


def _beside_spec(record: PlanRecord, subject: Subject | None) -> str | None:
    """Return what contradicts the spec, where it is the one that the record answers."""
    if subject is None or record.input_hash != subject.input_hash:
        return None
    space, plan, layout = subject.request.space, record.plan, record.plan.layout
    if len(plan.groups) > (space.replicas if subject.intent.fills else subject.intent.replicas):
        return f"has {len(plan.groups)} groups, more than the spec asks for"
    if layout.gpus > (space.max_gpus or layout.gpus):
        return f"has {layout.gpus} GPUs, more than the spec allows"
    pinned = {"tensor": space.tensor, "pipeline": space.pipeline, "expert": space.expert, "context": space.context}
    differs = (name for name, degree in pinned.items() if degree is not None and degree != getattr(layout, name))
    return next((f"has another {name} degree than the spec" for name in differs), None)


def _beside_nodes(plan: Plan, known: Known) -> str | None:
    """Return what contradicts the nodes; one that is away just now says nothing about a group that stands there."""
    standing = {node for live in _stateful_sets(known).values() for node in planned_nodes(live)}
    for name in {node for group in plan.groups for node in group}:
        node = known.nodes.get(name)
        if node is None and name not in standing:
            return f"names node {name}, which there is not"
        if isinstance(node, NodeFacts) and (node.resource != plan.resource or node.gpus < plan.gpus_per_node):
            return f"wants {plan.gpus_per_node} {plan.resource} of node {name}, which has {node.gpus} {node.resource}"
    return None


def _beside_sets(plan: Plan, known: Known) -> str | None:
    """Return what contradicts the StatefulSets that stand."""
    for root, live in _stateful_sets(known).items():
        index = next((at for at in range(len(plan.groups)) if group_name(base_name(known.owner.name), at) == root), None)
        if index is None or planned_nodes(live) != set(plan.groups[index]):
            return f"has StatefulSet {live['metadata']['name']} on other nodes"
        limits = [c.get("resources", {}).get("limits") or {} for c in live["spec"]["template"]["spec"]["containers"]]
        if not any(item.get(plan.resource) == str(plan.gpus_per_node) for item in limits):
            return f"has other devices for StatefulSet {live['metadata']['name']}"
    return None


def _stateful_sets(known: Known) -> dict[str, Mapping[str, Any]]:
    """Return the StatefulSets of the latest generation of each group, by the group's name without its generation."""
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for (kind, name), live in known.observed.objects.items():
        if kind == STATEFUL_SET and controller_uid(live) == known.owner.uid:
            index, number = generation_of(name)
            if number >= found.get(index, (0, live))[0]:
                found[index] = number, live
    return {root: live for root, (_, live) in found.items()}
