"""Does a live object still hold what was rendered? Fields are compared one by one, after the API
server's defaulting. Additions beside rendered fields do not count, except in lists without keys,
which belong to one writer as a whole.

Which differences need another object, because the API server lets nobody change the field?

A group whose StatefulSet differs so gets a next generation: as a surge if the plan of record has a
place for it, else once its pods are gone. Everything else is deleted and made again. Source: the
``ValidateUpdate`` functions of Kubernetes 1.36 for these kinds, and the schema of NVIDIA's
ComputeDomain. Disruption budgets, NetworkPolicies and the PodGroups of Coscheduling have no such
field; a PodGroup of Kubernetes has its size in its name, a Secret the kind of its content, and
neither is ever written again. Kueue fixes more fields of a StatefulSet in one of its queues, also
at zero.

Which template do a group's pods have, and what would another rendering change?

Pods stay while the request is the same: spec, plan and engine version. Another release may render
other pods for it, and a LimitRange may change: such a template is written to the StatefulSet at
once, where it restarts nothing (``OnDelete``), and comes with the next restart. So a StatefulSet is
always repaired by our own rendering, and nothing that lies where tenants write has to be believed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from shardwright.rendering.bundle import ASKED_HASH, OWN_HASH, TEMPLATE_HASH, KubernetesObject
from shardwright.rendering.gang_scheduling import QUEUE as OUR_QUEUE

# By key, not position: what a webhook injects before ours would be repaired for ever.
LIST_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "resourceClaims": "name",
    "claims": "name",
}
"""Keyed lists by field name, and their key; source: listMapKey and patchMergeKey of the Kubernetes
API. ``ports`` are keyed, too, but we own all of them, so they are compared in order.
"""

# The server keeps quantities as written, and "1024Mi" equals "1Gi".
QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "sizeLimit", "capacity"})
QUANTITY: Final = re.compile(r"([0-9.]+)([num]|[kMGTPE]i?|)")
SUFFIXES: Final = {
    "": Decimal(1),
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
} | {
    suffix + binary: Decimal(base) ** power
    for power, suffix in enumerate("kMGTPE", 1)
    for binary, base in (("", 1000), ("i", 1024))
}
"""What a quantity's suffix multiplies by; "Ki" has a capital K, which :func:`_amount` folds."""

NO_VALUE: Final[tuple[Any, ...]] = (None, False, 0, "", {}, [], ())


@dataclass(frozen=True, slots=True)
class Difference:
    """A rendered field that an object does not hold, and its value there (None: nothing)."""

    path: str
    live: Any


def drifted_fields(rendered: Any, live: Any) -> tuple[str, ...]:
    """Return the paths of rendered fields that the live object does not hold, in order.

    >>> drifted_fields(
    ...     {"spec": {"replicas": 2, "paused": False}}, {"spec": {"replicas": 1, "extra": 9}}
    ... )
    ('spec.replicas',)
    """
    return tuple(difference.path for difference in _differences(rendered, live, ""))


def dropped_fields(sent: Any, stored: Any) -> tuple[str, ...]:
    """Return the paths of sent fields that the API server's object lacks, in order.

    >>> dropped_fields(
    ...     {"spec": {"schedulingGroup": {"podGroupName": "a"}, "replicas": 2}},
    ...     {"spec": {"replicas": 1}},
    ... )
    ('spec.schedulingGroup',)
    """
    return tuple(
        difference.path
        for difference in _differences(sent, stored, "")
        # Lacking, not different: a server drops unknown fields silently; other differences are its
        # defaulting.
        if difference.live in (None, ())
    )


def _differences(rendered: Any, live: Any, path: str) -> Iterator[Difference]:
    if rendered == live:
        return  # most of most objects
    if isinstance(rendered, Mapping):
        yield from _of_mapping(rendered, live, path)
    elif isinstance(rendered, Sequence) and not isinstance(rendered, str):
        yield from _of_list(rendered, live, path)
    elif not _same_scalar(rendered, live, path):
        yield Difference(path, live)


def _of_mapping(rendered: Mapping[str, Any], live: Any, path: str) -> Iterator[Difference]:
    if not isinstance(live, Mapping):
        # The server leaves out an empty object that we render.
        if rendered or live is not None:
            yield Difference(path, live)
        return
    for field, value in rendered.items():
        yield from _differences(value, live.get(field), f"{path}.{field}" if path else str(field))


def _of_list(rendered: Sequence[Any], live: Any, path: str) -> Iterator[Difference]:
    live = live or ()
    key = LIST_KEYS.get(path.rsplit(".", 1)[-1])
    if key is None:
        yield from _of_atomic_list(rendered, live, path)
        return
    # Admission webhooks inject containers, variables and volumes beside ours; they stay.
    by_key = {item.get(key): item for item in live}
    for item in rendered:
        name = item.get(key)
        yield from _differences(item, by_key.get(name), f"{path}[{name}]")


def _of_atomic_list(
    rendered: Sequence[Any], live: Sequence[Any], path: str
) -> Iterator[Difference]:
    # A list without a key has one owner: an item that somebody added is drift.
    if len(rendered) != len(live):
        yield Difference(path, live)
        return
    for index, (one, other) in enumerate(zip(rendered, live, strict=True)):
        yield from _differences(one, other, f"{path}[{index}]")


def _same_scalar(rendered: Any, live: Any, path: str) -> bool:
    if live is None:
        return rendered in NO_VALUE  # the server leaves out what has no value
    return (
        _is_quantity(path) and (wanted := amount(rendered)) is not None and wanted == amount(live)
    )


def _is_quantity(path: str) -> bool:
    return not QUANTITY_FIELDS.isdisjoint(path.split("."))


def amount(quantity: Any) -> Decimal | None:
    """Return the amount of a quantity, or None if the value is none."""
    # Decimal, not float: 0.1 and 100m must be equal.
    match = QUANTITY.fullmatch(str(quantity).replace("Ki", "ki"))
    return Decimal(match[1]) * SUFFIXES[match[2]] if match else None


PENDING_MAX: Final = 24
"""How many fields are remembered that a restart changes. Basis: assumed; a release changes few."""

_SOME: Final = ("spec",)  # somebody has taken away what was remembered
OF_PODS: Final = "spec.template."
_HASHES: Final = frozenset(f"{OF_PODS}metadata.labels.{name}" for name in (TEMPLATE_HASH, OWN_HASH))


def template_hash(stateful_set: KubernetesObject) -> str:
    """Return the template hash that a StatefulSet gives its pods."""
    return str(_labels_of_pods(stateful_set).get(TEMPLATE_HASH, ""))


def own_hash(stateful_set: KubernetesObject) -> str:
    """Return the template hash of a StatefulSet without LimitRanges and a pull policy."""
    return own_hash_in(_labels_of_pods(stateful_set))


def own_hash_in(labels: Mapping[str, Any]) -> str:
    """Return the template hash that labels of pods would have without LimitRanges.

    >>> (
    ...     own_hash_in({"shardwright.io/template-hash": "a"}),
    ...     own_hash_in({"shardwright.io/own-template-hash": "b"}),
    ... )
    ('a', 'b')
    """
    # The second label is left out where it would be the same.
    return str(labels.get(OWN_HASH) or labels.get(TEMPLATE_HASH, ""))


def _labels_of_pods(stateful_set: KubernetesObject) -> Mapping[str, Any]:
    return stateful_set.get("spec", {}).get("template", {}).get("metadata", {}).get("labels") or {}


def asked_by(stateful_set: KubernetesObject) -> str:
    """Return the hash of the request for the pods of a StatefulSet, or ""."""
    return str((stateful_set.get("metadata", {}).get("annotations") or {}).get(ASKED_HASH, ""))


def asks_the_same(rendered: KubernetesObject, live: KubernetesObject) -> bool:
    """Return whether the pods of a live StatefulSet were made for what is wanted now."""
    return made_for(live, asked_by(rendered), own_hash(rendered))


def made_for(live: KubernetesObject, asked: str, own: str = "") -> bool:
    """Return whether the pods of a live StatefulSet were made for a request. ``own`` is the
    template hash without LimitRanges that it has now (empty: nobody has rendered it).
    """
    mark = asked_by(live)
    # Somebody has taken the mark away: the template tells, as that of another request is never
    # written while pods stay (ADR 15).
    return asked != "" and (mark == asked if mark else own_hash(live) == own != "")


def pending_fields(drift: Iterable[str], before: Iterable[str]) -> tuple[str, ...]:
    """Return the pod fields that a restart changes: those that differ now, and those that did.

    >>> pending_fields(
    ...     ["metadata.annotations.a", "spec.template.spec.containers[engine].args"],
    ...     ["spec.volumes[scripts]"],
    ... )
    ('spec.containers[engine].args', 'spec.volumes[scripts]')
    """
    found = {
        path.removeprefix(OF_PODS)
        for path in drift
        if path.startswith(OF_PODS) and path not in _HASHES
    }
    # Once the new template is written, the live object no longer differs, and the pods still do.
    return tuple(sorted(found.union(before)))[:PENDING_MAX] or _SOME


CLAIMS: Final = "volumeClaimTemplates"
OF_A_SET: Final = ("selector", "serviceName", "podManagementPolicy", CLAIMS)
"""Fields of the spec of a StatefulSet that never change."""

QUEUE: Final = "queue"
OF_QUEUED_PODS: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
"""Fields of the pods of a StatefulSet that never change while it is in a queue of Kueue, beside
requests and ports. Source: Kueue 0.17 ``pkg/util/pod`` (``SpecShape``) and
``pkg/controller/jobs/statefulset``, also at zero replicas.
"""

CONTAINERS: Final = ("initContainers", "containers")
OF_QUEUED_CONTAINERS: Final = ("resources", "ports")
"""Fields of a container that never change while its pod is in a queue of Kueue. The limits that go
with its requests are among them.
"""

_SPEC_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "Service": ("spec.clusterIP",),
    "ComputeDomain": ("spec",),
}
"""The same by kind of what is beside the pods; of a ConfigMap it is all data, if it says so."""


def made_anew(rendered: KubernetesObject, live: KubernetesObject) -> tuple[str, ...]:
    """Return the fields that keep a StatefulSet from becoming the rendered one; empty if both were
    made for the same request.

    A release that renders such a field differently restarts nothing: see :func:`as_it_can_be`.
    """
    if asks_the_same(rendered, live):
        # Where the mark is gone the template has told, and claims are no part of that.
        return () if asked_by(live) else _other_claims(rendered["spec"], live["spec"])
    return (*_differing(rendered, live), *_queued(rendered, live))


def as_it_can_be(rendered: KubernetesObject, live: KubernetesObject) -> KubernetesObject:
    """Return the rendered StatefulSet with the immutable fields of the live one, if both were made
    for the same request.
    """
    if made_anew(rendered, live):
        return rendered
    found = rendered
    if any(_queued(rendered, live)):
        found = _as_its_queue_has_it(rendered, live)
    if not _differing(rendered, live):
        return found
    others = {name: value for name, value in found["spec"].items() if name not in OF_A_SET}
    kept = {name: live["spec"][name] for name in OF_A_SET if name in live["spec"]}
    return {**found, "spec": {**others, **kept}}


def _as_its_queue_has_it(rendered: KubernetesObject, live: KubernetesObject) -> KubernetesObject:
    # With the parts of its pods that its queue would refuse to change, also at zero.
    there = pod_of(live)
    wanted = pod_of(rendered)
    pod = {name: wanted[name] for name in wanted if name not in OF_QUEUED_PODS}
    pod |= {name: there[name] for name in OF_QUEUED_PODS if name in there}
    for name in CONTAINERS:
        pod.pop(name, None)
        pod |= {name: found} if (found := _fixed(wanted, there, name)) else {}
    template = {**rendered["spec"]["template"], "spec": pod}
    return {**rendered, "spec": {**rendered["spec"], "template": template}}


def _fixed(
    wanted: Mapping[str, Any], there: Mapping[str, Any], name: str
) -> list[Mapping[str, Any]]:
    """Return containers with the live immutable fields; the live ones if their names differ."""
    new = list(wanted.get(name) or ())
    old = list(there.get(name) or ())
    # Kueue fixes the list of containers, so none can be added or left out.
    if [one["name"] for one in new] != [one["name"] for one in old]:
        return old
    return [
        {key: value for key, value in one.items() if key not in OF_QUEUED_CONTAINERS}
        | {key: before[key] for key in OF_QUEUED_CONTAINERS if key in before}
        for one, before in zip(new, old, strict=True)
    ]


def is_in_the_way(
    rendered: KubernetesObject, live: KubernetesObject, fields: Collection[str]
) -> bool:
    """Return whether these fields of an object beside the pods cannot be changed in place."""
    if rendered["kind"] == "ConfigMap":
        # An immutable ConfigMap takes changed labels and annotations, but no data.
        return bool(live.get("immutable")) and any(_is_under(path, "data") for path in fields)
    return any(
        _is_under(path, frozen) for frozen in _SPEC_OF.get(rendered["kind"], ()) for path in fields
    )


def _is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith((f"{parent}.", f"{parent}["))


def _differing(rendered: KubernetesObject, live: KubernetesObject) -> tuple[str, ...]:
    wanted, there = rendered["spec"], live["spec"]
    plain = (
        name
        for name in OF_A_SET
        if name in wanted
        and name != CLAIMS
        # As drift compares: the server's own defaults in these fields are no difference.
        and drifted_fields(wanted[name], there.get(name))
    )
    return (*plain, *_other_claims(wanted, there))


def _queued(rendered: KubernetesObject, live: KubernetesObject) -> Iterator[str]:
    """Yield the fields that a queue of Kueue lets nobody change, the queue's name included: that
    only changes while no pod is ready.
    """
    before, after = queue_of(live), queue_of(rendered)
    if before != after:
        yield QUEUE
    if before:
        there, wanted = pod_of(live), pod_of(rendered)
        yield from (
            name
            for name in OF_QUEUED_PODS
            # Both ways: a field that is dropped is a change, too.
            if drifted_fields(wanted.get(name), there.get(name))
            or drifted_fields(there.get(name), wanted.get(name))
        )
        yield from (
            name for name in CONTAINERS if _asks(wanted.get(name)) != _asks(there.get(name))
        )


def pod_of(stateful_set: KubernetesObject) -> Mapping[str, Any]:
    """Return the pod spec of a StatefulSet."""
    return (stateful_set["spec"].get("template") or {}).get("spec") or {}


def queue_of(stateful_set: KubernetesObject) -> str:
    """Return the Kueue queue that we put a StatefulSet into, or "".

    Its label may be anybody's: Kueue itself labels those of a namespace whose queue is called
    ``default``.
    """
    template = stateful_set["spec"].get("template") or {}
    return str((template.get("metadata", {}).get("annotations") or {}).get(OUR_QUEUE, ""))


def _asks(containers: Collection[Mapping[str, Any]] | None) -> list[object]:
    return [
        (
            _amounts(container.get("resources", {}).get("requests", {})),
            [
                (port.get("name"), port["containerPort"], port.get("protocol", "TCP"))
                for port in container.get("ports") or ()
            ],
        )
        for container in containers or ()
    ]


def _amounts(requests: Mapping[str, Any]) -> tuple[tuple[str, object], ...]:
    # 1Ti and 1024Gi are equal, and the server keeps the form that was written first.
    return tuple(sorted((name, amount(size)) for name, size in requests.items()))


def _other_claims(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, ...]:
    return () if tuple(_claims(wanted)) == tuple(_claims(there)) else (CLAIMS,)


def _claims(spec: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    for claim in spec.get(CLAIMS) or ():
        asks = claim["spec"].get("resources", {}).get("requests", {})
        yield (
            # Only what we render of a claim: the server adds its volumeMode and its status.
            claim["metadata"]["name"],
            tuple(claim["spec"].get("accessModes") or ()),
            claim["spec"].get("storageClassName"),
            _amounts(asks),
        )
