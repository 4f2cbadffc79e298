"""KServe's LLMInferenceService and InferenceService: their engines are the containers ``main`` and
``kserve-container``, by their contracts.

Shapes as of v1alpha1 and v1alpha2, and of v1beta1 (kserve/kserve).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright.api.weights_source import COMMIT
from shardwright.cli.imports.command_line import Launch, carry_options, launch_with
from shardwright.cli.imports.draft import Content, Draft
from shardwright.cli.imports.pods import (
    carry_command,
    carry_launch,
    carry_pod,
    container_named,
    launch_in,
    not_vllm,
)
from shardwright.cli.imports.source import Spot
from shardwright.cli.imports.storage import (
    MountedWeights,
    carry_model,
    carry_volumes,
    name_by_served,
)
from shardwright.errors import InputError

ENGINE: Final = "main"
"""The name of the engine's container. Source: KServe's configurations for LLMInferenceService."""

ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"
"""Variable from which KServe's launcher takes further options of vLLM."""

PREDICTOR: Final = "kserve-container"
"""The name of the engine's container in a predictor. Source: KServe's ``pkg/constants``."""

_WEIGHTS: Final = "/mnt/models"
"""Where an engine finds the weights. Source: KServe's ``pkg/constants``."""

_NAMED: Final = "KServe's own field or option says which model it is"

_FORMATS: Final = frozenset({"huggingface", "vllm"})
"""Formats of models whose runtime starts vLLM. Source: KServe's ``kserve-huggingfaceserver``."""

_DEVICES: Final = "which devices a pod has follows from the plan; see spec.placement"

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "worker": "all ranks of a group are rendered alike",
        "prefill": "prefill and decode run in the same pods; nothing says yet that they do not",
        "router": "route to the Service of status.endpoint with your own Gateway",
        "baseRefs": "write what the named configurations say into this one first",
        "scaling": "KEDA is told by spec.scaling, with the plan's own threshold",
        "autoscaling": "KEDA is told by spec.scaling, with the plan's own threshold",
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
    draft.carry_number("replicas", spec.at("replicas"))
    _scaling(draft, spec.at("scaling"))
    _routing(draft, spec.at("router", "scheduler"))
    draft.carry("model.servedName", spec.at("model", "name"))
    pod, container = spec.at("template"), container_named(spec.at("template"), ENGINE)
    metadata = root.at("metadata"), spec
    _command(draft, container)
    carry_pod(draft, pod, container, metadata)
    carry_volumes(draft, pod, container)
    _model(draft, spec.at("model", "uri"))
    for theirs in ("tensor", "pipeline", "data"):
        ours = "dataParallelAttention" if theirs == "data" else theirs
        draft.carry_degree(ours, spec.at("parallelism", theirs))
    return _REASONS


def _scaling(draft: Draft, scaling: Spot) -> None:
    """Add the bounds of an autoscaler; its triggers are the plan's to say."""
    most = scaling.at("maxReplicas").whole()
    if most is None:
        return
    draft.put("scaling.maxReplicas", most, scaling.at("maxReplicas"))
    least = scaling.at("minReplicas").whole()
    if least is not None:
        draft.put("scaling.minReplicas", least, scaling.at("minReplicas"))


def _routing(draft: Draft, scheduler: Spot) -> None:
    """Have requests follow their prefixes, as KServe's own scheduler has them; a pool or a
    configuration of somebody else's is left out.
    """
    if scheduler.value == {}:
        scheduler.document.taken.add(scheduler.keys)
        draft.put("routing.mode", "Router", scheduler)


def read_inference_service(draft: Draft, root: Spot, _: Sequence[Content]) -> Mapping[str, str]:
    """Add an InferenceService's predictor to a draft; return why its fields have no place.

    Raises:
        InputError: its runtime starts no vLLM, as far as its format or command tells.
    """
    predictor, source = root.at("spec", "predictor"), f"InferenceService {draft.name}"
    model = predictor.at("model")
    container = model if model.is_there else container_named(predictor, PREDICTOR)
    carry_pod(draft, predictor, container, [predictor, root.at("metadata")])
    if model.is_there:
        _of_runtime(draft, model, source)
    elif launch := launch_in(container):
        carry_launch(draft, predictor, container, launch)
    else:
        raise InputError([not_vllm(source)])
    carry_volumes(draft, predictor, container)
    draft.carry_number("replicas", predictor.at("minReplicas"))
    for ours in ("tensor", "pipeline"):
        draft.carry_degree(ours, predictor.at("workerSpec", f"{ours}ParallelSize"))
    return {**_REASONS, "workerSpec": _REASONS["worker"], "maxReplicas": _REASONS["scaling"]}


def _of_runtime(draft: Draft, model: Spot, source: str) -> None:
    """Add what KServe's runtime for models of the hub is told: its own options, and vLLM's."""
    if model.at("modelFormat", "name").text().lower() not in _FORMATS:
        raise InputError([not_vllm(source)])
    launch = launch_with(model.at("args").words)
    options = dict(launch.options)
    model.at("args").take()
    for theirs, ours in (("model-id", "model.id"), ("model-name", "model.servedName")):
        if isinstance(said := options.pop(theirs, None), str):
            draft.put(ours, said, model.at("args"))
    _leave_model(draft, launch, model)
    carry_options(draft, tuple(options.items()), model.path)
    if model.at("storageUri").is_there:
        _model(draft, model.at("storageUri"))


def _command(draft: Draft, container: Spot) -> None:
    """Add the options of the container's command, and those that KServe's launcher adds to it."""
    words = container.at("args").words
    alone = not container.at("command").is_there and words[:1] and words[0].startswith("-")
    launch = launch_with(words) if alone else launch_in(container)
    if launch:
        carry_command(draft, container, launch)
        _leave_model(draft, launch, container)
    for item in container.at("env").each():
        if item.at("name").value == ARGUMENTS and item.at("value").string:
            added = launch_with(_split(item.at("value").string))
            for key in ("name", "value"):
                item.at(key).take()
            carry_options(draft, added.options, item.path)
            _leave_model(draft, added, item)


def _leave_model(draft: Draft, launch: Launch, where: Spot) -> None:
    if launch.model and not launch.model.startswith(_WEIGHTS):
        draft.leave(where.path, f"{launch.model}: {_NAMED}")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # quotes that are not closed
        return text.split()


def _model(draft: Draft, uri: Spot) -> None:
    scheme, _, rest = uri.string.partition("://")
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
        carry_model(draft, _WEIGHTS, uri.path, MountedWeights(claim=claim, folder=folder))
        uri.take()
    elif scheme == "oci":
        draft.put("model.weights.uri", uri.take(), uri)
    else:
        uri.leave(
            f"{uri.value}: copy the weights to a claim "
            "(spec.model.weights.uri pvc://), or read them from the hub"
        )
    name_by_served(draft)
