"""A cluster in few lines: an API server, and a StatefulSet controller, a scheduler and kubelets
that take their time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import GpuUsage, read_node, read_pod
from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.members import read_member
from shardwright.reconcile.observed import controller_uid, object_key
from shardwright.reconcile.snapshot import Outcome, Refusal
from shardwright.reconcile.writes import (
    Aside,
    CreateKey,
    Delete,
    DropRevision,
    DryRunPod,
    HandOver,
    KeepRevision,
    ObjectKey,
    Write,
    written_kind,
    written_name,
)
from shardwright.rendering.names import generation_of
from tests.support.builders_nodes import a_node
from tests.support.builders_reconcile import NOON, World, no_place, pod

LOAD_SECONDS = 120
"""How long an engine loads, once all ranks of its group are bound."""

END_SECONDS = 10
"""How long a pod that is deleted takes to end, where its node answers."""

EVICTION_SECONDS = 300
"""How long a node is silent before its pods are deleted. Source: the default toleration of
Kubernetes.
"""

COLLECTED_SECONDS = 45
"""How long a Node object is gone before pods on it are collected. Source: Kubernetes' pod garbage
collector waits 40 s, and looks every 20 s.
"""

GRACE_SECONDS = 105
GPU = "nvidia.com/gpu"
DROPPED = "ControllerRevision that goes"
READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses:
    """What the API server does not take: writes of a kind and name (empty: of any), and what it
    says; ``code`` 0: no answer.

    The kind of what ends a revision is ``DROPPED``.
    """

    kind: str
    name: str = ""
    code: int = 403
    message: str = "exceeded quota: objects"

    def refusal(self, write: Write) -> Refusal | None:
        """Return the refusal of a write, None where it is taken."""
        kind = "Pod" if isinstance(write, DryRunPod) else _kind(write)
        if self.kind != kind or self.name not in (
            "",
            written_name(write) if not isinstance(write, DryRunPod) else self.name,
        ):
            return None
        passes = self.code in (0, 500, 503)
        reason = (
            "Forbidden" if self.code == 403 else "Timeout" if self.code == 0 else "InternalError"
        )
        message = self.message.format(name=_named_by_the_server(write))
        return Refusal(write=write, code=self.code, reason=reason, message=message, passes=passes)


_MADE_UP = count()


def _named_by_the_server(write: Write) -> str:
    """Return the name as the API server quotes it: a made-up one where the object has none."""
    metadata = getattr(write, "content", {"metadata": {"name": ""}})["metadata"]
    return str(
        metadata["name"] if "name" in metadata else f"{metadata['generateName']}{next(_MADE_UP)}"
    )


def _kind(write: Write) -> str:
    if isinstance(write, Delete):
        return write.kind
    if isinstance(write, DropRevision):
        return DROPPED
    return "StatefulSet" if not hasattr(write, "content") else str(write.content["kind"])


@dataclass
class SmallCluster(World):
    """Nodes, and the pods of one model on them; time passes when the test says so.

    ``others`` are GPUs that somebody else's pods hold, by node. ``stuck`` are nodes on which pods
    do not end. ``refuses`` is what the API server does not take; of pods it is neither created by
    the controller. ``queued``: a queue holds new pods back. ``revisions`` are ControllerRevisions
    by name. ``version`` changes with all that
    an operator would be woken by.
    """

    now: datetime = NOON
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    refuses: list[Refuses] = field(default_factory=list)
    facts: dict[str, NodeFacts | NodeExclusion] = field(default_factory=dict)
    silent_since: dict[str, datetime] = field(default_factory=dict)
    gone_since: dict[str, datetime] = field(default_factory=dict)
    version: int = 0
    queued: bool = False
    revisions: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def fork(self) -> SmallCluster:
        """Return a cluster that is just as this one, to go on with."""
        own = {
            name: copy.deepcopy(getattr(self, name))
            for name in ("objects", "pods", "nodes", "uids")
        }
        shared = {
            name: copy.copy(getattr(self, name))
            for name in (
                "others",
                "stuck",
                "revisions",
                "refuses",
                "facts",
                "silent_since",
                "gone_since",
                "kept_out",
                "short_since",
            )
        }
        return replace(self, **own, **shared)

    def add_nodes(self, count: int, first: int = 0, **options: Any) -> None:
        """Add nodes of 8 x H100: ``h100-0``, ``h100-1``, ..."""
        for index in range(first, first + count):
            self.set_node(f"h100-{index}", **options)

    def set_node(self, name: str, *, ready: bool = True, **options: Any) -> None:
        """Add a node, or change it into this one."""
        self.version += 1
        self.nodes[name] = a_node(name, ready=ready, **options)
        found = read_node(self.nodes[name])
        assert found
        self.facts[name] = found
        self.gone_since.pop(name, None)
        if ready:
            self.silent_since.pop(name, None)
        else:
            self.silent_since.setdefault(name, self.now)

    def delete_node(self, name: str) -> None:
        """Delete a Node object: its pods are collected some time later."""
        self.version += 1
        del self.nodes[name], self.facts[name]
        self.gone_since[name] = self.now
        self.silent_since.pop(name, None)

    def carry_out(self, writes: Iterable[Write]) -> Outcome:
        """Carry writes out in order; what is refused stops nothing but what needs it."""
        written: list[Write] = []
        refused: list[Refusal] = []
        missing: set[ObjectKey] = set()
        for write in writes:
            if not missing.isdisjoint(getattr(write, "needs", ())):
                missing.add((written_kind(write), written_name(write)))
                continue
            refusal = next((found for rule in self.refuses if (found := rule.refusal(write))), None)
            if refusal:
                refused.append(refusal)
                missing.add((written_kind(write), written_name(write)))
            else:
                self._write(write)
                written.append(write)
        return Outcome(written=tuple(written), refused=tuple(refused))

    def _write(self, write: Write) -> None:
        self.version += not isinstance(
            write, Aside | CreateKey
        )  # nobody watches Secrets and revisions
        match write:
            case CreateKey():
                pass  # nor reads them
            case KeepRevision():
                self.revisions.setdefault(written_name(write), write.content)
            case DropRevision():
                self.revisions.pop(write.name, None)
            case HandOver():
                pass  # the resource is not of this cluster
            case Delete(kind="Pod") if write.name in self.pods:
                self.end(self.pods[write.name], write.grace_seconds or 0)
            case Delete(kind="Pod"):
                pass
            case _:
                super()._write(write)

    def _store(self, content: Mapping[str, Any], uid: str) -> None:
        before = self.objects.get(object_key(content), {"metadata": {}})
        super()._store(content, uid)
        created = before["metadata"].get("creationTimestamp", self.now.isoformat())
        self.objects[object_key(content)]["metadata"]["creationTimestamp"] = created

    def end(
        self, item: dict[str, Any], grace_seconds: int = GRACE_SECONDS, taken_by: str = ""
    ) -> None:
        """Begin to end a pod, or give one that ends less time."""
        self.version += 1
        metadata = item["metadata"]
        metadata.setdefault("deletionTimestamp", self.now.isoformat())
        metadata["deletionGracePeriodSeconds"] = min(
            grace_seconds, metadata.get("deletionGracePeriodSeconds", grace_seconds)
        )
        if taken_by:
            item["status"]["conditions"] += [
                {"type": "DisruptionTarget", "status": "True", "reason": taken_by}
            ]

    def drain(self, node: str) -> None:
        """Evict the pods of a node."""
        for item in self.on(node):
            self.end(item, taken_by="EvictionByEvictionAPI")

    def on(self, node: str) -> list[dict[str, Any]]:
        return [item for item in self.pods.values() if item["spec"].get("nodeName") == node]

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.settle()

    def settle(self) -> None:
        """Let controllers, scheduler and kubelets do what is due."""
        before = self._shown()
        self._end_pods()
        self._create_pods()
        for item in self.pods.values():
            waits = not item["spec"].get("nodeName") and not item["spec"].get("schedulingGates")
            if waits and "deletionTimestamp" not in item["metadata"]:
                self._schedule(item)
        for item in self.pods.values():
            self._run(item)
        self.version += before != self._shown()

    def _shown(self) -> list[tuple[object, ...]]:
        pods = self.pods.values()
        return [
            (
                p["metadata"]["uid"],
                p["metadata"].get("deletionTimestamp"),
                p["spec"].get("nodeName"),
                repr(p["status"]),
            )
            for p in pods
        ]

    def _end_pods(self) -> None:
        for name, item in list(self.pods.items()):
            node = item["spec"].get("nodeName")
            if node in self.gone_since:
                if self.now >= self.gone_since[node] + timedelta(seconds=COLLECTED_SECONDS):
                    del self.pods[name]
                continue
            silent = self.silent_since.get(node or "")
            evicted = silent and self.now >= silent + timedelta(seconds=EVICTION_SECONDS)
            if "deletionTimestamp" not in item["metadata"] and (
                evicted or not self._is_wanted(item)
            ):
                self.end(item, taken_by="" if silent is None else "DeletionByTaintManager")
            ending = item["metadata"].get("deletionTimestamp")
            ended = ending and self.now >= datetime.fromisoformat(ending) + timedelta(
                seconds=END_SECONDS
            )
            if ending and (not node or (ended and silent is None and node not in self.stuck)):
                del self.pods[name]

    def _create_pods(self) -> None:
        if any(rule.kind == "Pod" for rule in self.refuses):
            return
        for name, item in self.sets().items():
            for rank in range(item["spec"]["replicas"]):
                if f"{name}-{rank}" not in self.pods:
                    self.pods[f"{name}-{rank}"] = self._pod(item, rank)
            revisions = {
                p["metadata"]["labels"]["shardwright.io/template-hash"] for p in self.pods_of(name)
            }
            self.mixed = self.mixed or len(revisions) > 1

    def _pod(self, item: Mapping[str, Any], rank: int) -> dict[str, Any]:
        template, metadata = item["spec"]["template"], item["metadata"]
        revision = template["metadata"]["labels"]["shardwright.io/template-hash"]
        name, uid = f"{metadata['name']}-{rank}", f"pod-{next(self.uids)}"
        made = pod(name, uid=uid, revision=revision, set_uid=metadata["uid"])
        made["metadata"]["labels"] = {
            **template["metadata"]["labels"],
            **made["metadata"]["labels"],
        }
        made["spec"] = copy.deepcopy(template["spec"])
        made["spec"] |= (
            {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]} if self.queued else {}
        )
        made["status"] = {"phase": "Pending", "conditions": [UNREADY]}
        return made

    def admit(self) -> None:
        """Let the queue go on with all pods that it holds back, and with those to come."""
        self.queued, self.version = False, self.version + 1
        for item in self.pods.values():
            item["spec"].pop("schedulingGates", None)

    def _schedule(self, item: dict[str, Any]) -> None:
        wanted = planned_nodes({"spec": {"template": item}})
        node = next(
            (name for name in sorted(wanted or self.nodes) if self._takes(name, item)), None
        )
        if node:
            item["spec"]["nodeName"] = node
            item["status"] = {"phase": "Pending", "conditions": [UNREADY], "boundAt": self.now}
        elif len(item["status"]["conditions"]) == 1:
            item["status"]["conditions"] = [UNREADY, no_place("no node takes it", self.now)]

    def _takes(self, node: str, item: dict[str, Any]) -> bool:
        facts = self.facts.get(node)
        if (
            not isinstance(facts, NodeFacts)
            or not (facts.ready and facts.schedulable)
            or self.nodes[node]["spec"]["taints"]
        ):
            return False
        return facts.gpus - self.held(node) >= int(
            item["spec"]["containers"][0]["resources"]["limits"][GPU]
        )

    def held(self, node: str) -> int:
        """Return the GPUs that pods hold on a node."""
        return self.others.get(node, 0) + sum(
            usage.gpus for usage in self.usage() if usage.node == node
        )

    def usage(self) -> list[GpuUsage]:
        """Return the GPUs that the pods of the model hold."""
        return [usage for item in self.pods.values() for usage in read_pod(item)]

    def _run(self, item: dict[str, Any]) -> None:
        node = item["spec"].get("nodeName")
        # Nobody writes the status of a pod whose node is gone.
        if not node or node in self.gone_since:
            return
        if node in self.silent_since or "deletionTimestamp" in item["metadata"]:
            taken = [
                condition
                for condition in item["status"]["conditions"]
                if condition["type"] == "DisruptionTarget"
            ]
            item["status"]["conditions"] = [UNREADY, *taken]
            return
        group = self.pods_of(item["metadata"]["name"].rpartition("-")[0])
        bound = [other["status"].get("boundAt") for other in group]
        size = self.sets().get(
            item["metadata"]["name"].rpartition("-")[0], {"spec": {"replicas": 0}}
        )["spec"]["replicas"]
        if (
            len(bound) == size
            and all(bound)
            and self.now >= max(bound) + timedelta(seconds=LOAD_SECONDS)
        ):
            ready = {"name": "engine", "restartCount": 0, "state": {"running": {}}, "started": True}
            statuses = item["status"].get("containerStatuses") or [ready]
            item["status"] |= {
                "phase": "Running",
                "conditions": [READY],
                "containerStatuses": statuses,
            }

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a StatefulSet, by name and controller."""
        uid = self.sets().get(name, {"metadata": {"uid": ""}})["metadata"]["uid"]
        return [item for item in self.pods.values() if controller_uid(item) == uid]

    def serving(self) -> dict[str, frozenset[str]]:
        """Return the groups that serve, whatever their generation, by name of group, with the uids
        of their pods.

        An engine that has ended and was started again alone does not find the other ranks of its
        group.
        """
        found: dict[str, frozenset[str]] = {}
        for name, item in self.sets().items():
            # Somebody may have made others, of names that no rank has.
            pods = [item for item in self.pods_of(name) if read_member(item)]
            ready = [
                READY in p["status"]["conditions"]
                and "deletionTimestamp" not in p["metadata"]
                and p["spec"].get("nodeName") not in self.gone_since
                for p in pods
            ]
            ready += [
                len(pods) == 1 or not p["status"]["containerStatuses"][0]["restartCount"]
                for p in pods
                if all(ready)
            ]
            if item["spec"]["replicas"] and len(pods) == item["spec"]["replicas"] and all(ready):
                found[generation_of(name)[0]] = frozenset(p["metadata"]["uid"] for p in pods)
        return found

    def standing_on(self, node: str) -> frozenset[str]:
        """Return the groups with a pod on a node."""
        return frozenset(
            generation_of(item["metadata"]["name"].rpartition("-")[0])[0] for item in self.on(node)
        )

    def gpus(self, node: str) -> int:
        """Return how many healthy GPUs a node has."""
        found = self.facts.get(node)
        return found.gpus if isinstance(found, NodeFacts) else 0
