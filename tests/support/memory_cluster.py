"""A cluster in memory that lives: StatefulSet controller, scheduler, kubelets and garbage
collector, by a clock that is moved.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.cluster.resources import NODES, PODS, STATEFUL_SETS, Resource
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.nodes import read_node, read_pod
from shardwright.reconcile.disruption import planned_nodes
from shardwright.reconcile.observed import controller_uid
from shardwright.rendering.bundle import TEMPLATE_HASH
from tests.harness.api import Manifest
from tests.support.builders_operator import Hand
from tests.support.builders_reconcile import crashed, pod
from tests.support.memory_api import MemoryApi, Place

LOAD_SECONDS: Final = 60.0
"""How long an engine loads, once all ranks of its group are bound."""

END_SECONDS: Final = 5.0
"""How long a pod that is deleted takes to end, where its node answers."""

EVICTION_SECONDS: Final = 300.0
"""How long a node is silent before its pods are deleted. Source: the default toleration of
Kubernetes.
"""

HANGS: Final = "ABORT"
"""With this as NCCL_DEBUG engines do not come up."""

GRACE_SECONDS: Final = 105
TIMESTAMP: Final = "2026-01-02T12:00:00Z"
READY: Final = {"type": "Ready", "status": "True"}
UNREADY: Final = {"type": "Ready", "status": "False"}


@dataclass
class Timers:
    """When what takes its time is over, in seconds of the cluster's clock."""

    ends: dict[str, float]
    """Of pods that are deleted, by uid."""
    serves: dict[str, float]
    """Of pods that load, by uid."""
    evicts: dict[str, float]
    """Of nodes that are silent, by name."""


class MemoryCluster(MemoryApi):
    """Objects, and those who act on them when :meth:`work` is called.

    ``pods_made`` are the names of all pods that were created, in order; ``changes`` is how often
    anything was stored or removed. While it ``keeps_out`` pods, a quota refuses new ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = Hand()
        self.timers = Timers({}, {}, {})
        self.pods_made: list[str] = []
        self.changes = 0
        self.keeps_out = False

    def saved(self) -> bytes:
        """Return all that is stored and all that is still to come, to go on with it as often as
        wanted.
        """
        return pickle.dumps(
            (self.objects, self._numbers, self._resources, self.timers, self.clock, self.pods_made)
        )

    def restore(self, saved: bytes) -> None:
        """Be as the cluster was that was saved, with nobody who listens."""
        stored = pickle.loads(saved)  # noqa: S301  # our own
        (self.objects, self._numbers, self._resources, self.timers, self.clock, self.pods_made) = (
            stored
        )
        self.watches.clear()

    def all(self, resource: Resource) -> list[Manifest]:
        return [
            item for (plural, _, _), item in list(self.objects.items()) if plural == resource.plural
        ]

    def next_at(self) -> float | None:
        """Return when something is over next, None where nobody waits for anything; what is over by
        now waits for a node.
        """
        times = (
            *self.timers.ends.values(),
            *self.timers.serves.values(),
            *self.timers.evicts.values(),
        )
        return min((at for at in times if at > self.clock.seconds), default=None)

    def work(self) -> None:
        """Let everybody do what is due, until nothing is."""
        changes = -1
        while changes != (changes := self.changes):
            self._collect_garbage()
            self._end_pods()
            self._delete_pods()
            self._create_pods()
            self._bind_pods()
            self._run_pods()

    def tell_again(self, known: Mapping[Place, Manifest]) -> None:
        """Tell those who watch what there is, and which of these objects is gone: what a new LIST
        tells after a gap.
        """
        for place, item in known.items():
            found = self.objects.get(place)
            if found is None or found["metadata"]["uid"] != item["metadata"]["uid"]:
                self._tell(self._resources[place[0]], item, gone=True)
        for place, item in list(self.objects.items()):
            self._tell(self._resources[place[0]], item, gone=False)

    def silence(self, node: str) -> None:
        """Let the kubelet of a node stop answering: its pods are not ready, are deleted in a while,
        and do not end.
        """
        self._set_ready(node, "Unknown")
        self.timers.evicts[node] = self.clock.seconds + EVICTION_SECONDS

    def heal(self, node: str) -> None:
        """Let the kubelet of a node answer again."""
        self._set_ready(node, "True")
        self.timers.evicts.pop(node, None)

    def silent(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.all(NODES) if not _says_ready(node)}

    def crash(self, name: str, namespace: str = "models") -> None:
        """Let the engine of a pod end, and the kubelet start it again."""
        with self.changing(PODS, namespace, name) as item:
            item["status"] |= {
                "conditions": [UNREADY],
                "containerStatuses": crashed(name)["status"]["containerStatuses"],
            }

    def members(self, stateful_set: Manifest) -> list[Manifest]:
        uid = stateful_set["metadata"]["uid"]
        return [item for item in self.all(PODS) if controller_uid(item) == uid]

    def end(self, item: Manifest, grace_seconds: int = GRACE_SECONDS, taken_by: str = "") -> None:
        """Begin to end a pod, or give one that ends less time; one that is bound to no node is gone
        at once. ``taken_by`` is why it is a DisruptionTarget, empty if it is none.
        """
        metadata = item["metadata"]
        left = metadata.get("deletionGracePeriodSeconds", grace_seconds + 1)
        if not item["spec"].get("nodeName"):
            self.remove(PODS, metadata["namespace"], metadata["name"])
        elif grace_seconds < left:
            self.timers.ends.setdefault(metadata["uid"], self.clock.seconds + END_SECONDS)
            self.timers.serves.pop(metadata["uid"], None)
            with self.changing(PODS, metadata["namespace"], metadata["name"]) as ending:
                ending["metadata"] |= {
                    "deletionTimestamp": TIMESTAMP,
                    "deletionGracePeriodSeconds": grace_seconds,
                }
                taken = {"type": "DisruptionTarget", "status": "True", "reason": taken_by}
                ending["status"]["conditions"] = [UNREADY, *([taken] if taken_by else ())]

    def _tell(self, resource: Resource, item: Manifest, *, gone: bool) -> None:
        self.changes += 1
        super()._tell(resource, item, gone=gone)

    def _delete(self, resource: Resource, live: Manifest, grace_seconds: int | None) -> None:
        if resource != PODS or grace_seconds == 0:
            super()._delete(resource, live, grace_seconds)
        else:
            self.end(live, GRACE_SECONDS if grace_seconds is None else grace_seconds)

    def _set_ready(self, node: str, status: str) -> None:
        with self.changing(NODES, None, node) as item:
            others = [
                condition
                for condition in item["status"]["conditions"]
                if condition["type"] != "Ready"
            ]
            item["status"]["conditions"] = [*others, {"type": "Ready", "status": status}]

    def _collect_garbage(self) -> None:
        uids = {item["metadata"]["uid"] for item in self.objects.values()}
        for place, item in list(self.objects.items()):
            owners = item["metadata"].get("ownerReferences") or ()
            if owners and all(owner["uid"] not in uids for owner in owners):
                if place[0] == PODS.plural:
                    self.end(item)
                else:
                    self.remove(self._resources[place[0]], *place[1:])

    def _end_pods(self) -> None:
        nodes, silent = ({node["metadata"]["name"] for node in self.all(NODES)}, self.silent())
        for item in self.all(PODS):
            uid, node = item["metadata"]["uid"], item["spec"].get("nodeName")
            ended = self.timers.ends.get(uid, float("inf")) <= self.clock.seconds
            if node and (node not in nodes or (ended and node not in silent)):
                self.remove(PODS, item["metadata"]["namespace"], item["metadata"]["name"])
                self.timers.ends.pop(uid, None)
                self.timers.serves.pop(uid, None)

    def _delete_pods(self) -> None:
        """Delete pods that their StatefulSet wants no more, and those of nodes that have been
        silent for long.
        """
        sets = {item["metadata"]["uid"]: item for item in self.all(STATEFUL_SETS)}
        evicted = {node for node, at in self.timers.evicts.items() if at <= self.clock.seconds}
        for item in self.all(PODS):
            owner = sets.get(controller_uid(item) or "")
            if (owner and _rank(item) >= owner["spec"]["replicas"]) or item["spec"].get(
                "nodeName"
            ) in evicted:
                self.end(item)
        for node in evicted:
            del self.timers.evicts[node]

    def _create_pods(self) -> None:
        if self.keeps_out:
            return
        there = {item["metadata"]["name"] for item in self.all(PODS)}
        for item in self.all(STATEFUL_SETS):
            names = [
                f"{item['metadata']['name']}-{rank}" for rank in range(item["spec"]["replicas"])
            ]
            for name in names:
                if name not in there:
                    self.put(PODS, _pod_of(item, name))
                    self.pods_made.append(name)

    def _bind_pods(self) -> None:
        for item in self.all(PODS):
            if item["spec"].get("nodeName"):
                continue
            wanted = planned_nodes({"spec": {"template": item}})
            node = next(
                (
                    name
                    for name, gpus in self._free()
                    if (not wanted or name in wanted) and _asks(item) <= gpus
                ),
                None,
            )
            if node:
                with self.changing(
                    PODS, item["metadata"]["namespace"], item["metadata"]["name"]
                ) as bound:
                    bound["spec"]["nodeName"] = node

    def _free(self) -> Iterator[tuple[str, int]]:
        """Yield the nodes that take pods, with the GPUs that are free there."""
        usages = [usage for item in self.all(PODS) for usage in read_pod(item)]
        for node in self.all(NODES):
            facts = read_node(node)
            if isinstance(facts, NodeFacts) and facts.ready and facts.schedulable:
                yield (
                    facts.name,
                    facts.gpus - sum(usage.gpus for usage in usages if usage.node == facts.name),
                )

    def _run_pods(self) -> None:
        """Let groups load whose ranks are all bound, and serve when they have loaded."""
        silent = self.silent()
        for item in self.all(STATEFUL_SETS):
            pods = [
                one for one in self.members(item) if one["metadata"]["uid"] not in self.timers.ends
            ]
            bound = [
                one
                for one in pods
                if one["spec"].get("nodeName") and one["spec"]["nodeName"] not in silent
            ]
            for one in pods:
                if one["spec"].get("nodeName") in silent and READY in one["status"]["conditions"]:
                    self._note(one, conditions=[UNREADY])
            if len(bound) == item["spec"]["replicas"]:
                for one in bound:
                    self._load(one)

    def _load(self, item: Manifest) -> None:
        uid, serves = item["metadata"]["uid"], self.timers.serves
        hangs = {"name": "NCCL_DEBUG", "value": HANGS} in item["spec"]["containers"][0].get(
            "env", ()
        )
        if (
            hangs
            or READY in item["status"]["conditions"]
            or "deletionTimestamp" in item["metadata"]
        ):
            return
        if serves.setdefault(uid, self.clock.seconds + LOAD_SECONDS) <= self.clock.seconds:
            del serves[uid]
            ready = [
                {"name": "engine", "restartCount": 0, "state": {"running": {}}, "started": True}
            ]
            statuses = item["status"].get("containerStatuses") or ready
            self._note(item, phase="Running", conditions=[READY], containerStatuses=statuses)

    def _note(self, item: Manifest, **status: Any) -> None:
        with self.changing(PODS, item["metadata"]["namespace"], item["metadata"]["name"]) as noted:
            noted["status"] |= status


def _says_ready(node: Manifest) -> bool:
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"]
    )


def _rank(item: Manifest) -> int:
    return int(item["metadata"]["name"].rpartition("-")[2])


def _asks(item: Manifest) -> int:
    placed = read_pod({**item, "spec": {**item["spec"], "nodeName": "any"}})
    return sum(usage.gpus for usage in placed)


def _pod_of(stateful_set: Manifest, name: str) -> Manifest:
    template, metadata = stateful_set["spec"]["template"], stateful_set["metadata"]
    made = pod(
        name, revision=template["metadata"]["labels"][TEMPLATE_HASH], set_uid=metadata["uid"]
    )
    labels = {**template["metadata"]["labels"], **made["metadata"]["labels"]}
    del made["metadata"]["uid"]
    made["metadata"] |= {
        "namespace": metadata["namespace"],
        "labels": labels,
        "creationTimestamp": TIMESTAMP,
    }
    made["metadata"]["annotations"] = dict(template["metadata"].get("annotations") or {})
    made["spec"] = {name: value for name, value in template["spec"].items() if name != "nodeName"}
    made["status"] = {"phase": "Pending", "conditions": [UNREADY]}
    return made
