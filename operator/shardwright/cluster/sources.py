"""The objects watched for ever, and what is kept of each: small values that compare.

Our objects that somebody has filled: the kept part of one larger than anything we write.

Our copy loses others' additions first, then our own fields; the object itself stays, and stays ours
as its controller says.

The kept part of a ShardedModel: what has a schema, without parts that may have any size.

Inline configs, labels and managed fields may be 1.5 MB, thirty times as much as Python values. So
an inline config is read to be resolved, and then forgotten.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from sys import intern
from typing import Any, Final

from shardwright.api.free_form import without_free_form
from shardwright.cluster.handover import Key
from shardwright.cluster.kinds import POD_GROUPS
from shardwright.cluster.reader import Source
from shardwright.cluster.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    LIMIT_RANGES,
    NETWORK_POLICIES,
    NODES,
    OPTIONAL_CHILDREN,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
    SHARDED_MODELS,
    STATEFUL_SETS,
    Resource,
)
from shardwright.hardware.devices import read_claim, read_device_class, read_slice
from shardwright.hardware.gpus import NONE, Stated
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import BareNode, GpuUsage, NodeFacts, bare_node, read_pod, read_raw
from shardwright.hardware.suitability import implausible
from shardwright.hardware.untrusted import raw_node
from shardwright.reconcile.group import READ_ANNOTATIONS
from shardwright.reconcile.members import Member, read_member
from shardwright.reconcile.observed import controller
from shardwright.reconcile.quotas import PriorityClass, read_quota, read_ranges
from shardwright.reconcile.writes import kind_of
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.labels import API_VERSION, KIND, MANAGED_BY, MODEL

CHILD_MAX_BYTES: Final = 262_144
"""Unit: bytes of JSON, of what is kept of one object.

Basis: derived; the largest template has less than 100 KiB beside the names of its nodes, and 2,000
nodes of 63 characters have 126 KB. The API server takes 1.5 MB, and tenants write what they like.
"""

CHILD_MAX_MARKS: Final = 16_384
"""Brackets and commas of its JSON outside of texts, of which no value has less than one.

Basis: derived; the largest template has less than 3,000 beside the names of its nodes, of one
each. An empty object takes 3 bytes of JSON, and 72 as a Python value.
"""

_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
"""A text of JSON; what is in it is one value, whatever it says."""

DOMAINS: Final = ("shardwright.io/", "app.kubernetes.io/", "kueue.x-k8s.io/", "scheduling.k8s.io/")
"""How annotations and labels begin that we write. Source: ``rendering``."""

ANNOTATION_MAX_BYTES: Final = 98_304
"""Of one annotation that is ours. Basis: derived; the uids of the pods of 2,000 nodes, the longest,
take 74 KB.
"""


def is_overfull(body: bytes) -> bool:
    """Return whether an object's JSON is larger, or has more in it, than anything we write."""
    if len(body) > CHILD_MAX_BYTES:
        return True
    # Counting is fast and an upper bound; texts are cut out only where that bound is passed.
    if _marks(body) <= CHILD_MAX_MARKS:
        return False
    return _marks(_TEXT.sub(b"", body)) > CHILD_MAX_MARKS


def _marks(body: bytes) -> int:
    return sum(body.count(mark) for mark in (b"{", b"[", b","))


def bounded(whole: KubernetesObject, size: int) -> tuple[Mapping[str, Any], str]:
    """Return the kept part of an overfull object of ours, and what was too large.

    Others' annotations and labels go first, then the template and whatever anybody can still change
    in its spec: a missing field differs from the rendered one, so it is repaired.
    """
    metadata = whole["metadata"]
    own = {
        field: _own(metadata[field])
        for field in ("annotations", "labels")
        if isinstance(metadata.get(field), Mapping)
    }
    theirs = {
        field: len(json.dumps(metadata[field])) - len(json.dumps(own[field])) for field in own
    }
    # Its owner stays in any case: else a group that serves would be somebody else's by its size
    # alone (ADR 9).
    kept = {**whole, "metadata": {**metadata, **own}}
    if not is_overfull(json.dumps(kept).encode()):
        field = max(theirs, key=lambda name: theirs[name])
        return kept, f"{theirs[field]:,} bytes in metadata.{field} are not ours"
    return {
        **kept,
        "spec": _fixed(whole.get("spec") or {}),
    }, f"{size:,} bytes, and more in its spec than is ours"


def _own(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: text
        for name, text in texts.items()
        if name.startswith(DOMAINS) and len(json.dumps(text)) <= ANNOTATION_MAX_BYTES
    }


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is immutable in a spec we have made, its number of pods, and their owner."""
    template = spec.get("template")
    if not isinstance(template, Mapping):
        return {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    others = {
        name: value
        for name, value in spec.items()
        if name != "template" and len(json.dumps(value)) <= ANNOTATION_MAX_BYTES
    }
    # The labels of the template stay: by the hash in them it is told from the rendered one.
    return {**others, "template": {"metadata": {"labels": _own(labels)}, "spec": {}}}


MANAGED: Final = ("labelSelector", "=".join(MANAGED_BY))

_RANK: Final = re.compile(r"0|[1-9][0-9]{0,3}")
"""The last part of the name of a pod of a group. Basis: assumed, no group has ten thousand; a name
may say any number.
"""

DIGEST_BYTES: Final = 16

LEVEL: Final = 1
"""How hard zlib tries. Basis: measured, the plan of record and the scripts of a model, 35 kB, take
13 kB and 0.2 ms.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What is kept of a pod that holds GPUs or has the label of a model.

    ``usage`` is its request by resource, ``model`` the label's value (empty without one),
    ``set_uid`` the StatefulSet that controls it (empty: none) and ``member`` its place in that.
    Only the StatefulSet's own object says whether it is ours.
    """

    usage: tuple[GpuUsage, ...] = ()
    model: str = ""
    set_uid: str = ""
    member: Member | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object with our label: all that was written of it, without its controllers' reports.

    ``owner`` and ``owner_uid`` name the ShardedModel that controls it, both empty if none does:
    then only its existence is kept. If it is larger than anything we write, our fields are kept and
    ``excess`` names the others. It is equal while its ``digest`` is, whatever its status.
    ``version`` is the number of the version it was seen at. ``orphan_of`` is the model that the
    label of an object without any owner names, empty else.
    """

    kind: str  # as kind_of says
    namespace: str
    name: str
    uid: str
    owner: str
    owner_uid: str
    digest: bytes
    body: bytes = field(compare=False, repr=False)
    version: int = field(compare=False)
    excess: str = ""
    orphan_of: str = ""

    def content(self) -> dict[str, Any]:
        """Return the object, a new one each time."""
        content: dict[str, Any] = unpacked(self.body)
        return content


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapFacts:
    """What is kept of any ConfigMap: its identity, version and owner as in :class:`Child`."""

    uid: str
    version: str
    owner: str = ""
    owner_uid: str = ""
    orphan_of: str = ""


def project_node(
    node: dict[str, Any], stated: Stated = NONE
) -> NodeFacts | NodeExclusion | BareNode | None:
    """Return a Node's facts for planning, even without GPUs: ResourceSlices may offer some.

    Its labels share their texts with all other nodes'.
    """
    metadata = node["metadata"]
    # Interned: thousands of nodes have the same labels, and pods repeat the names of nodes.
    metadata["name"] = _shared(metadata["name"])
    if isinstance(labels := metadata.get("labels"), dict):
        metadata["labels"] = {intern(key): _shared(value) for key, value in labels.items()}
    raw = raw_node(node, stated.label_prefix)
    return bare_node(raw, stated) or read_raw(raw, stated)


def project_pod(pod: dict[str, Any]) -> PodFacts | None:
    """Return the facts of a Pod, None if it holds no GPUs and names no model."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if "nodeName" in spec:
        spec["nodeName"] = _shared(spec["nodeName"])
    metadata["namespace"] = _shared(metadata.get("namespace"))
    usage, model = (read_pod(pod), _shared((metadata.get("labels") or {}).get(MODEL) or ""))
    if not model:
        return PodFacts(usage=usage) if usage else None
    owner = controller(pod)
    # By group, too: another group may have a kind of this name.
    if owner.get("kind") != "StatefulSet" or _group(owner) != "apps":
        return PodFacts(usage=usage, model=model)
    set_uid = _shared(owner["uid"])
    return PodFacts(usage=usage, model=model, set_uid=set_uid, member=_member(pod, owner))


def _member(pod: KubernetesObject, owner: Mapping[str, Any]) -> Member | None:
    """Return the StatefulSet member a pod is, None if no StatefulSet gives a pod such a name."""
    metadata = pod["metadata"]
    head, _, ordinal = metadata["name"].rpartition("-")
    if head != owner["name"] or not _RANK.fullmatch(ordinal):
        return None
    return read_member({**pod, "metadata": {**metadata, "ownerReferences": [owner]}})


def project_child(resource: Resource, content: KubernetesObject) -> Child:
    """Return the kept part of an object with our label, with the kind that items of a LIST lack."""
    metadata = content["metadata"]
    version = metadata.get("resourceVersion", "")
    whole = _kept(resource, content)
    owner, owner_uid = _model_of(content)
    kind, body, excess = (kind_of(whole), _text(whole if owner else _in_the_way(whole)), "")
    if is_overfull(body):
        found, excess = bounded(whole, len(body))
        # Digest and copy are of the kept part: else each change in a foreign field of a filled
        # object would be news.
        body = _text(found)
    return Child(
        kind=kind,
        namespace=intern(metadata.get("namespace", "")),
        name=metadata["name"],
        uid=metadata["uid"],
        owner=owner,
        owner_uid=owner_uid,
        digest=blake2b(body, digest_size=DIGEST_BYTES).digest(),
        body=zlib.compress(body, LEVEL),
        version=int(version) if version.isdecimal() else 0,
        excess=excess,
        orphan_of=_orphan_of(metadata),
    )


def packed(content: object) -> bytes:
    """Return a JSON value compressed, to be kept for long and seldom read by :func:`unpacked`."""
    return zlib.compress(_text(content), LEVEL)


def unpacked(kept: bytes) -> Any:
    """Return the value that was packed, a new one each time."""
    return json.loads(zlib.decompress(kept))


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _kept(resource: Resource, content: KubernetesObject) -> dict[str, Any]:
    metadata = {
        key: value
        for key, value in content["metadata"].items()
        # Both change with every write, also where nothing that we have written does.
        if key not in {"managedFields", "resourceVersion"}
    }
    rest = {
        key: value
        for key, value in content.items()
        if key not in {"apiVersion", "kind", "metadata", "status"}
    }
    if resource is DEPLOYMENTS:
        # Whether the router answers: nothing else says it, as its pods are no pods of the model.
        rest["status"] = {"readyReplicas": (content.get("status") or {}).get("readyReplicas", 0)}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}


def _in_the_way(whole: KubernetesObject) -> dict[str, Any]:
    """Return what is kept of a foreign object in ours' place: it exists, and is controlled."""
    metadata, (label, value) = whole["metadata"], MANAGED_BY
    kept = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "deletionTimestamp")
        if name in metadata
    }
    if controller(whole):
        # That somebody controls it, and that it is not us: no uid of a resource is empty.
        kept["ownerReferences"] = [{"controller": True, "uid": ""}]
    named = {"apiVersion": whole["apiVersion"], "kind": whole["kind"]}
    return {**named, "metadata": {**kept, "labels": {label: value}}, "spec": {}}


def project_config_map(config_map: KubernetesObject) -> ConfigMapFacts:
    """Return the kept part of a ConfigMap."""
    metadata = config_map["metadata"]
    owner, owner_uid = _model_of(config_map)
    return ConfigMapFacts(
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        owner=owner,
        owner_uid=owner_uid,
        orphan_of=_orphan_of(metadata),
    )


def project_priority_class(content: KubernetesObject) -> PriorityClass:
    """Return what preemption needs of a PriorityClass."""
    return PriorityClass(
        value=int(content["value"]), is_default=content.get("globalDefault") is True
    )


def _orphan_of(metadata: Mapping[str, Any]) -> str:
    labels, (managed, us) = metadata.get("labels") or {}, MANAGED_BY
    if metadata.get("ownerReferences") or "deletionTimestamp" in metadata:
        return ""
    return _shared(labels.get(MODEL) or "") if labels.get(managed) == us else ""


def _model_of(content: KubernetesObject) -> tuple[str, str]:
    owner = controller(content)
    ours = owner.get("kind") == KIND and _group(owner) == _group({"apiVersion": API_VERSION})
    return (_shared(owner["name"]), _shared(owner["uid"])) if ours else ("", "")


def _group(reference: Mapping[str, Any]) -> str:
    return str(reference.get("apiVersion", "")).partition("/")[0]


def _shared(value: Any) -> Any:
    return intern(value) if type(value) is str else value


def _child(resource: Resource, *, optional: bool = False) -> Source[Child]:
    return Source(
        resource=resource,
        project=partial(project_child, resource),
        query=(MANAGED,),
        optional=optional,
    )


def _unreadable_node(key: Key) -> NodeExclusion:
    return NodeExclusion(
        node=key[1],
        # Excluded, not absent: a node that is away and one that cannot be read are two faults, with
        # two ways out.
        problem=implausible("the Node object", "must be readable; the operator's log says more"),
    )


def node_source(stated: Stated) -> Source[NodeFacts | NodeExclusion | BareNode]:
    """Return the source of nodes, read with the administrator's statements about them."""
    return Source(
        resource=NODES, project=partial(project_node, stated=stated), stand_in=_unreadable_node
    )


# A selector on the phase would take a pod away at the moment at which it says how it has failed.
# Two watches would show it twice, or not at all, for a moment (ADR 9).
POD_SOURCE: Final = Source(resource=PODS, project=project_pod)
"""All pods, finished ones too, as nothing else tells how a pod of ours has failed; nothing is kept
of finished foreign ones.
"""

CONFIG_MAP_SOURCE: Final = Source(
    resource=CONFIG_MAPS, project=project_config_map, metadata_only=True
)

PRIORITY_CLASS_SOURCE: Final = Source(resource=PRIORITY_CLASSES, project=project_priority_class)

QUOTA_SOURCE: Final = Source(resource=RESOURCE_QUOTAS, project=read_quota)

RANGE_SOURCE: Final = Source(resource=LIMIT_RANGES, project=read_ranges)

SLICE_SOURCE: Final = Source(resource=RESOURCE_SLICES, project=read_slice, optional=True)

DEVICE_CLASS_SOURCE: Final = Source(
    resource=DEVICE_CLASSES, project=read_device_class, optional=True
)

CLAIM_SOURCE: Final = Source(resource=RESOURCE_CLAIMS, project=read_claim, optional=True)

CHILD_SOURCES: Final = (
    *(
        _child(resource)
        for resource in (STATEFUL_SETS, SERVICES, DISRUPTION_BUDGETS, NETWORK_POLICIES)
    ),
    *(_child(resource, optional=True) for resource in (*OPTIONAL_CHILDREN, *POD_GROUPS)),
)


METADATA: Final = (
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
"""Fields that are kept, each of which the API server bounds."""

ANNOTATION_MAX_LENGTH: Final = 256
"""Unit: characters of each annotation that is read. Basis: assumed, four times what of it counts.
"""


def project_model(content: KubernetesObject) -> dict[str, Any]:
    """Return the kept part of a ShardedModel, with the kind that items of a LIST lack."""
    return {
        "apiVersion": SHARDED_MODELS.api_version,
        "kind": SHARDED_MODELS.kind,
        "metadata": kept_metadata(content["metadata"]),
        "spec": without_free_form(content.get("spec") or {}),
        "status": content.get("status") or {},
    }


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kept part of a ShardedModel's metadata."""
    kept = {field: metadata[field] for field in METADATA if field in metadata}
    written = metadata.get("annotations") or {}
    asked = {
        name: written[name][:ANNOTATION_MAX_LENGTH] for name in READ_ANNOTATIONS if name in written
    }
    return {**kept, "annotations": asked} if asked else kept
