"""Which differences need another object, because the API server lets nobody change the field?

A group whose StatefulSet differs so gets a next generation: as a surge if the plan of record has a
place for it, else once its pods are gone. Everything else is deleted and made again. Source: the
``ValidateUpdate`` functions of Kubernetes 1.36 for these kinds, and the schema of NVIDIA's
ComputeDomain. Disruption budgets, NetworkPolicies and the PodGroups of Coscheduling have no such
field; a PodGroup of Kubernetes has its size in its name, a Secret the kind of its content, and
neither is ever written again. Kueue fixes more fields of a StatefulSet in one of its queues, also
at zero.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from shardwright.reconcile.drift import amount, drifted_fields
from shardwright.reconcile.templates import asked_by, asks_the_same
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.gang_scheduling import QUEUE as OUR_QUEUE

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
