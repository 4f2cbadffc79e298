"""Who holds GPUs? Pods to the GPUs they keep on a node, with the model they belong to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.hardware.devices import RESOURCE, read_claim
from shardwright.hardware.suitability import RESOURCES
from shardwright.hardware.untrusted import (
    mapping,
    mappings,
    quantity,
    text_or_empty,
    texts,
)

MODEL_LABEL: Final = "shardwright.io/model"
GROUP_LABEL: Final = "shardwright.io/group"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """The GPUs that one pod holds; ``owner`` is (namespace, ShardedModel), None for foreign
    pods.
    """

    node: str
    resource: str
    gpus: int
    owner: tuple[str, str] | None = None
    group: str = ""


def read_pod(pod: object) -> GpuUsage | None:
    """Return the GPUs that a pod holds, None for a pod that holds none, has finished, or is not
    placed yet.

    Terminating pods still hold theirs; a pod nominated to a node (after preemption) counts as
    placed.
    """
    whole = mapping(pod)
    metadata, spec, status = (
        mapping(whole.get(part)) for part in ("metadata", "spec", "status")
    )
    node = text_or_empty(spec.get("nodeName")) or text_or_empty(
        status.get("nominatedNodeName")
    )
    if not node or text_or_empty(status.get("phase")) in _FINISHED:
        return None
    resource, gpus = next(
        ((name, n) for name in RESOURCES if (n := _requested(spec, name))), ("", 0)
    )
    if not gpus:
        return None
    owner, group = _model_of(metadata)
    return GpuUsage(node=node, resource=resource, gpus=gpus, owner=owner, group=group)


def read_claimed(
    claims: Iterable[object], pods: Iterable[object]
) -> Iterator[GpuUsage]:
    """Yield the GPUs that ResourceClaims hold beside what their pods request: those of the pods
    that labels say whose they are.
    """
    there = {(_text(pod, "namespace"), _text(pod, "name")): pod for pod in pods}
    for claim in claims:
        held = read_claim(claim)
        if held is None:
            continue
        pod = there.get((_text(claim, "namespace"), held.pod), {})
        requested = read_pod(pod) if held.extended else None
        said_by_pod = requested is not None and requested.node == held.node
        gpus = held.gpus - (requested.gpus if requested and said_by_pod else 0)
        owner, group = _model_of(mapping(mapping(pod).get("metadata")))
        if gpus > 0:
            yield GpuUsage(
                node=held.node, resource=RESOURCE, gpus=gpus, owner=owner, group=group
            )


def _text(content: object, name: str) -> str:
    return text_or_empty(mapping(mapping(content).get("metadata")).get(name))


def _model_of(metadata: Mapping[str, Any]) -> tuple[tuple[str, str] | None, str]:
    """Return whose a pod is by its labels, and of which group; None: nobody's."""
    labels = texts(metadata.get("labels"))
    model = labels.get(MODEL_LABEL)
    owner = (text_or_empty(metadata.get("namespace")), model) if model else None
    return owner, labels.get(GROUP_LABEL, "")


def _requested(spec: Mapping[str, Any], resource: str) -> int:
    """Return what the scheduler counts: the larger of the running containers and of each step of
    the start.
    """
    sidecars = peak = 0
    for container in mappings(spec.get("initContainers")):
        request = _request(container, resource)
        if text_or_empty(container.get("restartPolicy")) == "Always":
            sidecars += request
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + request)
    running = sidecars + sum(
        _request(container, resource) for container in mappings(spec.get("containers"))
    )
    overhead = quantity(mapping(spec.get("overhead")).get(resource)) or 0
    return max(running, peak) + overhead


def _request(container: Mapping[str, Any], resource: str) -> int:
    """Return the request of a container; extended resources may state the limit only."""
    resources = mapping(container.get("resources"))
    stated = (
        quantity(mapping(resources.get(part)).get(resource))
        for part in ("requests", "limits")
    )
    return next((amount for amount in stated if amount is not None), 0)
