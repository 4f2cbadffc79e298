"""KServe's LLMInferenceService: its engine is the container ``main``, by its contract.

Shapes as of v1alpha1 and v1alpha2 (kserve/kserve).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.api.weights_source import COMMIT
from shardwright.cli.imports.command_line import carry_options, launch_of
from shardwright.cli.imports.draft import Content, Draft
from shardwright.cli.imports.pods import carry_command, carry_pod, container_named, launch_in
from shardwright.cli.imports.source import Spot
from shardwright.cli.imports.storage import MountedWeights, carry_model, carry_volumes

ENGINE: Final = "main"
"""The name of the engine's container. Source: KServe's configurations for LLMInferenceService."""

ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"
"""Variable from which KServe's launcher takes further options of vLLM."""

_DEVICES: Final = "which devices a pod has follows from the plan; see spec.placement"

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "worker": "all ranks of a group are rendered alike",
        "prefill": "prefill and decode run in the same pods; nothing says yet that they do not",
        "router": "route to the Service of status.endpoint with your own Gateway",
        "baseRefs": "write what the named configurations say into this one first",
        "scaling": "scale the ShardedModel: it has the subresource scale",
        "autoscaling": "scale the ShardedModel: it has the subresource scale",
        "storageInitializer": "the engine downloads the weights, or reads them from a claim",
        "expert": "whether experts are spread is the planner's to choose",
        "dataLocal": "how a group lies on its nodes follows from the plan",
        "dataRPCPort": "the operator chooses the ports",
        "lora": "adapters come from the hub or a claim: spec.model.adapters",
        "serving.kserve.io/exp-dra-device-class": _DEVICES,
        "serving.kserve.io/exp-dra-device-count": _DEVICES,
        "serving.kserve.io/exp-dra-container-name": _DEVICES,
        "serving.kserve.io/exp-dra-cel-selector": _DEVICES,
    }
)


def read_llm_inference_service(draft: Draft, root: Spot, _: Sequence[Content]) -> Mapping[str, str]:
    """Add an LLMInferenceService to a draft; return why its fields have no place."""
    spec = root.at("spec")
    replicas = spec.at("replicas").whole()
    if replicas is not None:
        draft.put("replicas", replicas, spec.at("replicas"))
    draft.carry("model.servedName", spec.at("model", "name"))
    pod, container = spec.at("template"), container_named(spec.at("template"), ENGINE)
    metadata = root.at("metadata"), spec
    _command(draft, container)
    carry_pod(draft, pod, container, metadata, f"LLMInferenceService {draft.name}")
    carry_volumes(draft, pod, container)
    name = spec.at("model", "name").value
    _model(draft, spec.at("model", "uri"), name if isinstance(name, str) else "")
    _degrees(draft, spec.at("parallelism"))
    return _REASONS


def _command(draft: Draft, container: Spot) -> None:
    """Add the options of the container's command, and those that KServe's launcher adds to it."""
    words = [str(word) for word in container.at("args").value or ()]
    alone = not container.at("command").is_there and words[:1] and words[0].startswith("-")
    launch = launch_of(["vllm", "serve", *words], {}) if alone else launch_in(container)
    if launch:
        carry_command(draft, container, launch)
    for item in container.at("env").each():
        if item.at("name").value == ARGUMENTS and isinstance(item.at("value").value, str):
            added = launch_of(["vllm", "serve", *_split(item.at("value").value)], {})
            for key in ("name", "value"):
                item.at(key).take()
            carry_options(draft, added.options if added else (), item.path)
            if added and added.model:
                draft.leave(item.path, f"{added.model}: spec.model says which model it is")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # quotes that are not closed
        return text.split()


def _model(draft: Draft, uri: Spot, name: str) -> None:
    scheme, _, rest = (uri.value if isinstance(uri.value, str) else "").partition("://")
    if scheme == "hf":
        model, _, revision = rest.partition(":")
        draft.put("model.id", model, uri)
        if re.fullmatch(COMMIT, revision):
            draft.put("model.revision", revision, uri)
        elif revision:
            draft.leave(uri.path, f"revision {revision}: set spec.model.revision to the commit")
        uri.take()
    elif scheme == "pvc":
        claim, _, folder = rest.partition("/")
        carry_model(draft, "/weights", uri.path, MountedWeights(claim=claim, folder=folder))
        uri.take()
    elif scheme == "oci":
        draft.put("model.weights.uri", uri.take(), uri)
    else:
        uri.leave(
            f"{uri.value}: copy the weights to a claim "
            "(spec.model.weights.uri pvc://), or read them from the hub"
        )
    if draft.get("model.id") is None and name.count("/") == 1:
        draft.put("model.id", name)


def _degrees(draft: Draft, degrees: Spot) -> None:
    for theirs, ours in (
        ("tensor", "tensor"),
        ("pipeline", "pipeline"),
        ("data", "dataParallelAttention"),
    ):
        degree = degrees.at(theirs).whole()
        if degree is not None:
            draft.degrees[ours] = degree
