"""Dynamo's DynamoGraphDeployment: its engine is the main container of the worker that decodes.

Shapes as of v1alpha1 (``services``) and v1beta1 (``components``) (ai-dynamo/dynamo).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.cli.imports.draft import Content, Draft
from shardwright.cli.imports.pods import (
    carry_access,
    carry_environment,
    carry_launch,
    carry_pod,
    carry_resources,
    container_named,
    launch_in,
    not_vllm,
    several,
)
from shardwright.cli.imports.source import Spot
from shardwright.cli.imports.storage import carry_volumes
from shardwright.errors import InputError

ENGINE: Final = "main"
"""The name of the engine's container in a template of pods. Source: Dynamo's samples, v1beta1."""

TOKEN_KEY: Final = "HF_TOKEN"  # noqa: S105 - the key of a Secret
"""Key of the Secret from which workers take their variables. Source: Dynamo's documentation."""

_RESOURCES: Final[Mapping[str, str]] = MappingProxyType({"gpu": "nvidia.com/gpu"})
"""Dynamo's own names of resources. Source: its CRD, v1alpha1."""

_WORKERS: Final = frozenset({"worker", "decode", "prefill"})

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "autoscaling": "KEDA is told by spec.scaling, with the plan's own threshold",
        "backendFramework": "vLLM is what is imported",
        "components": "clients reach the model at status.endpoint, and one set of pods does "
        "prefill and decode",
        "image": "it is Dynamo's own; the default image is used",
        "multinode": "how many nodes a group has follows from the plan",
        "modelRef": "the command says which model it is",
        "pvcs": "see spec.model.weights.cache and spec.pod.volumes",
        "services": "clients reach the model at status.endpoint, and one set of pods does prefill "
        "and decode",
        "sharedMemory": "shared memory follows from the plan",
        "sharedMemorySize": "shared memory follows from the plan",
    }
)


def read_graph(draft: Draft, root: Spot, _: Sequence[Content]) -> Mapping[str, str]:
    """Add the worker of a graph that decodes to a draft; return why its fields have no place.

    Raises:
        InputError: no worker runs vLLM, or more than one that is not for prefill alone.
    """
    spec, source = root.at("spec"), f"DynamoGraphDeployment {draft.name}"
    parts = (*spec.at("services").each(), *spec.at("components").each())
    workers = [part for part in parts if _kind(part) in _WORKERS and not _is_prefill(part)]
    if len(workers) != 1:
        names = [part.path for part in workers]
        raise InputError([several(source, "workers", names) if names else not_vllm(source)])
    worker = workers[0]
    pod, container = _pod_of(worker)
    launch = launch_in(container)
    if launch is None:
        raise InputError([not_vllm(source)])
    carry_environment(draft, spec.at("envs"))
    carry_environment(draft, worker.at("envs"))
    carry_access(draft, worker.at("envFromSecret"), TOKEN_KEY)
    for item in container.at("envFrom").each():
        carry_access(draft, item.at("secretRef", "name"), TOKEN_KEY)
    container.at("image").leave(_REASONS["image"])
    metadata = [worker, worker.at("extraPodMetadata"), worker.at("podTemplate", "metadata")]
    carry_pod(draft, pod, container, metadata)
    carry_resources(draft, worker.at("resources"), _RESOURCES)
    carry_launch(draft, pod, container, launch)
    carry_volumes(draft, pod, container)
    draft.carry_number("replicas", worker.at("replicas"))
    for key in ("name", "type", "componentType", "subComponentType"):
        worker.at(key).take()
    return _REASONS


def _kind(part: Spot) -> str:
    return str(part.at("componentType").value or part.at("type").value or "")


def _pod_of(part: Spot) -> tuple[Spot, Spot]:
    """Return a worker's pod and its engine's container, in either version."""
    template = part.at("podTemplate", "spec")
    if template.is_there:
        return template, container_named(template, ENGINE)
    return part.at("extraPodSpec"), part.at("extraPodSpec", "mainContainer")


def _is_prefill(part: Spot) -> bool:
    """Return whether a worker does prefill alone, by its type or by the options of its command."""
    if "prefill" in (_kind(part), part.at("subComponentType").value):
        return True
    launch = launch_in(_pod_of(part)[1])
    options = dict(launch.options) if launch else {}
    return "is-prefill-worker" in options or options.get("disaggregation-mode") == "prefill"
