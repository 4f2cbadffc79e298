"""Builders for the reconciler: rendered objects, and a small cluster that carries decisions out."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from shardwright.api.record import PlanRecord
from shardwright.reconcile.decide import Desired, decide
from shardwright.reconcile.group import LifeRules
from shardwright.reconcile.members import Member, read_member
from shardwright.reconcile.observed import (
    STATEFUL_SET,
    KeptOut,
    Observed,
    controller_uid,
    object_key,
)
from shardwright.reconcile.writes import (
    Apply,
    Create,
    CreateKey,
    Delete,
    DryRunPod,
    ObjectKey,
    Patch,
    Write,
)
from shardwright.rendering.bundle import TEMPLATE_HASH
from shardwright.rendering.names import group_names
from tests.support.builders_deployment import a_plan

OWNER_UID = "owner-1"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


NEVER_CHANGES = ("serviceName", "podManagementPolicy", "volumeClaimTemplates", "clusterIP")
"""Fields of a spec that an API server refuses to change."""


def rendered(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return an object as rendering makes it."""
    metadata = {
        "name": name,
        "namespace": "models",
        "labels": {"app.kubernetes.io/managed-by": "shardwright"},
        "annotations": {"shardwright.io/content-hash": f"{name}-{sorted(fields.items())}"},
        "ownerReferences": [
            {"kind": "ShardedModel", "name": "llama", "uid": OWNER_UID, "controller": True}
        ],
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def stateful_set(
    name: str = "llama-0",
    *,
    pods: int = 2,
    revision: str = "r1",
    nodes: Sequence[str] = (),
    scripts: str = "",
) -> dict[str, Any]:
    """Return a group's StatefulSet whose pods are of ``revision``, bound to ``nodes``, and mount
    the ConfigMap ``scripts``.
    """
    template: dict[str, Any] = {
        "metadata": {"labels": {TEMPLATE_HASH: revision}},
        "spec": {
            "containers": [{"name": "engine", "env": [{"name": "REVISION", "value": revision}]}]
        },
    }
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template["spec"] |= {"affinity": {"nodeAffinity": wanted}} if nodes else {}
    template["spec"] |= (
        {"volumes": [{"name": "scripts", "configMap": {"name": scripts}}]} if scripts else {}
    )
    return rendered(
        "StatefulSet",
        name,
        spec={"replicas": pods, "serviceName": f"{name}-peers", "template": template},
    )


def service(name: str = "llama") -> dict[str, Any]:
    return rendered("Service", name, spec={"ports": [{"name": "http", "port": 8000}]})


def desired(*objects: Mapping[str, Any], rules: LifeRules | None = None) -> Desired:
    return Desired(owner_uid=OWNER_UID, objects=objects, rules=rules or LifeRules())


def by_name(groups: Sequence[Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the nodes of planned groups by their names, without the generation."""
    return dict(zip(group_names("llama", range(len(groups))), groups, strict=True))


def a_record(**changes: Any) -> PlanRecord:
    return replace(
        PlanRecord(input_hash="input", cut_hash="cut", generation=1, plan=a_plan()), **changes
    )


@dataclass
class World:
    """An API server, a StatefulSet controller and a kubelet in few lines; pods change when
    :meth:`settle` is called.

    ``mixed``: pods of one group have been of several revisions at once. ``kept_out`` are the
    StatefulSets whose pods are refused, ``short_since`` says since when each lacks pods, both by
    name.
    """

    objects: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    uids: Any = field(default_factory=lambda: itertools.count(1))
    mixed: bool = False
    kept_out: dict[str, KeptOut] = field(default_factory=dict)
    short_since: dict[str, datetime] = field(default_factory=dict)

    def write(self, writes: Sequence[Write], first: int | None = None) -> None:
        """Carry out the first writes only, as an operator that is killed after them."""
        for write in writes[:first]:
            self._write(write)

    def _write(self, write: Write) -> None:
        match write:
            case Create():
                assert object_key(write.content) not in self.objects
                self._store(write.content, f"uid-{next(self.uids)}")
            case Apply():
                live = self.objects[object_key(write.content)]
                assert live["metadata"]["uid"] == write.uid
                assert all(
                    live.get("spec", {}).get(name) == write.content.get("spec", {}).get(name)
                    for name in NEVER_CHANGES
                )
                self._store(write.content, write.uid)
            case Patch():
                self._patch(write)
            case Delete(kind="Pod"):
                assert self.pods[write.name]["metadata"]["uid"] == write.uid
                del self.pods[write.name]
            case Delete():
                assert self.objects[write.kind, write.name]["metadata"]["uid"] == write.uid
                del self.objects[write.kind, write.name]
            case CreateKey() | DryRunPod():
                pass  # nobody reads a key, and a question changes nothing

    def _store(self, content: Mapping[str, Any], uid: str) -> None:
        stored = copy.deepcopy(dict(content))
        stored["metadata"]["uid"] = uid
        self.objects[object_key(content)] = stored

    def _patch(self, write: Patch) -> None:
        live = self.objects[STATEFUL_SET, write.name]
        assert live["metadata"]["uid"] == write.uid
        annotations = {**live["metadata"].get("annotations", {}), **write.annotations}
        live["metadata"]["annotations"] = {
            name: value for name, value in annotations.items() if value is not None
        }
        live["spec"] |= {} if write.replicas is None else {"replicas": write.replicas}

    def sets(self) -> dict[str, dict[str, Any]]:
        """Return the StatefulSets by name."""
        return {name: item for (kind, name), item in self.objects.items() if kind == STATEFUL_SET}

    def settle(self) -> None:
        """Let the controller delete and create pods, and let all of them become ready."""
        for name, item in list(self.pods.items()):
            if not self._is_wanted(item):
                del self.pods[name]
        for name, item in self.sets().items():
            for rank in range(item["spec"]["replicas"]):
                self.pods.setdefault(f"{name}-{rank}", self._pod(item, rank))
            revisions = {
                p["metadata"]["labels"][TEMPLATE_HASH]
                for n, p in self.pods.items()
                if n.rpartition("-")[0] == name
            }
            self.mixed = self.mixed or len(revisions) > 1

    def _is_wanted(self, item: Mapping[str, Any]) -> bool:
        """Return whether a pod's StatefulSet is still the one that made it and still has its
        rank.
        """
        group, _, rank = item["metadata"]["name"].rpartition("-")
        live = self.sets().get(group)
        return (
            live is not None
            and controller_uid(item) == live["metadata"]["uid"]
            and int(rank) < live["spec"]["replicas"]
        )

    def _pod(self, item: Mapping[str, Any], rank: int) -> dict[str, Any]:
        metadata, template = item["metadata"], item["spec"]["template"]
        made = pod(
            f"{metadata['name']}-{rank}",
            uid=f"pod-{next(self.uids)}",
            revision=template["metadata"]["labels"][TEMPLATE_HASH],
            set_uid=metadata["uid"],
        )
        made["spec"] |= {"volumes": template["spec"].get("volumes", [])}
        return made

    def put(self, item: dict[str, Any]) -> None:
        """Put a pod in the place of the one of its name, as one that the live StatefulSet of its
        group controls.
        """
        name = item["metadata"]["name"]
        live = self.sets().get(name.rpartition("-")[0])
        if live:
            item["metadata"]["ownerReferences"][0]["uid"] = live["metadata"]["uid"]
        self.pods[name] = item

    def crash(self, name: str, exit_code: int = 1) -> None:
        """Let the kubelet restart the engine of a pod in place."""
        self.pods[name] = self.pods[name] | {"status": crashed(name, exit_code)["status"]}

    def observed(self) -> Observed:
        members = tuple(member for item in self.pods.values() if (member := read_member(item)))
        uids = {name: item["metadata"]["uid"] for name, item in self.sets().items()}
        kept_out = {uids[name]: said for name, said in self.kept_out.items() if name in uids}
        short_since = {
            uids[name]: since for name, since in self.short_since.items() if name in uids
        }
        objects = copy.deepcopy(self.objects)
        return Observed(
            objects=objects, members=members, kept_out=kept_out, short_since=short_since
        )

    def run(self, wanted: Desired, now: datetime = NOON, limit: int = 12) -> int:
        """Decide, write and settle until nothing is left to write; return the number of writes."""
        written = 0
        for _ in range(limit):
            writes = decide(wanted, self.observed(), now).writes
            if not writes:
                return written
            self.write(writes)
            written += len(writes)
            self.settle()
        raise AssertionError(f"still writing after {limit} rounds: {writes}")


def pod(
    name: str,
    *,
    uid: str = "",
    revision: str = "r1",
    ready: bool = True,
    set_uid: str = "s",
    **status: Any,
) -> dict[str, Any]:
    """Return a running pod of a StatefulSet."""
    group, _, rank = name.rpartition("-")
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "metadata": {
            "name": name,
            "namespace": "models",
            "uid": uid or f"uid-of-{name}",
            "labels": {
                "apps.kubernetes.io/pod-index": rank,
                "controller-revision-hash": revision,
                TEMPLATE_HASH: revision,
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": group,
                    "uid": set_uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": f"node-{rank}"},
        "status": {"phase": "Running", "conditions": [condition], **status},
    }


def no_place(message: str, since: datetime) -> dict[str, str]:
    """Return the condition of a pod for which the scheduler finds no node."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": since.isoformat().replace("+00:00", "Z"),
    }


def crashed(name: str, exit_code: int = 1, **options: Any) -> dict[str, Any]:
    """Return a pod whose engine has been restarted in place."""
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    container = {"name": "engine", "restartCount": 1, "state": {"running": {}}, "lastState": ended}
    return pod(name, **options, containerStatuses=[container])


def member(name: str, **options: Any) -> Member:
    found = read_member(pod(name, **options))
    assert found is not None
    return found
