"""KAITO's Workspace, InferenceSet and MultiRoleInference: they name presets of its catalogue.

Shapes as of v1alpha1 and v1beta1 (kaito-project/kaito).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

import yaml

from shardwright.cli.imports.command_line import carry_options
from shardwright.cli.imports.draft import Content, Draft
from shardwright.cli.imports.pods import (
    carry_access,
    carry_launch,
    carry_pod,
    carry_selector,
    carry_slices,
    engine_of,
    not_vllm,
)
from shardwright.cli.imports.source import ForeignObject, Spot
from shardwright.cli.imports.storage import carry_volumes
from shardwright.errors import InputError, Problem

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"

TOKEN_KEY: Final = "HF_TOKEN"  # noqa: S105 - the key of a Secret
"""Key of the Secret that ``modelAccessSecret`` names. Source: KAITO's documentation."""

PRESETS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1-0528",
        "deepseek-r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "deepseek-r1-distill-qwen-14b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
        "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3-0324",
        "falcon-40b": "tiiuae/falcon-40b",
        "falcon-40b-instruct": "tiiuae/falcon-40b-instruct",
        "falcon-7b": "tiiuae/falcon-7b",
        "falcon-7b-instruct": "tiiuae/falcon-7b-instruct",
        "gemma-3-27b-instruct": "google/gemma-3-27b-it",
        "gemma-3-4b-instruct": "google/gemma-3-4b-it",
        "gpt-oss-120b": "openai/gpt-oss-120b",
        "gpt-oss-20b": "openai/gpt-oss-20b",
        "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
        "llama-3.3-70b-instruct": "meta-llama/Llama-3.3-70B-Instruct",
        "ministral-3-14b-instruct": "mistralai/Ministral-3-14B-Instruct-2512",
        "ministral-3-3b-instruct": "mistralai/Ministral-3-3B-Instruct-2512",
        "ministral-3-8b-instruct": "mistralai/Ministral-3-8B-Instruct-2512",
        "mistral-7b": "mistralai/Mistral-7B-v0.3",
        "mistral-7b-instruct": "mistralai/Mistral-7B-Instruct-v0.3",
        "mistral-large-3-675b-instruct": "mistralai/Mistral-Large-3-675B-Instruct-2512",
        "phi-2": "microsoft/phi-2",
        "phi-3-medium-128k-instruct": "microsoft/Phi-3-medium-128k-instruct",
        "phi-3-medium-4k-instruct": "microsoft/Phi-3-medium-4k-instruct",
        "phi-3-mini-128k-instruct": "microsoft/Phi-3-mini-128k-instruct",
        "phi-3-mini-4k-instruct": "microsoft/Phi-3-mini-4k-instruct",
        "phi-3-small-128k-instruct": "microsoft/Phi-3-small-128k-instruct",
        "phi-3-small-8k-instruct": "microsoft/Phi-3-small-8k-instruct",
        "phi-3.5-mini-instruct": "microsoft/Phi-3.5-mini-instruct",
        "phi-4": "microsoft/phi-4",
        "phi-4-mini-instruct": "microsoft/Phi-4-mini-instruct",
        "qwen2.5-coder-32b-instruct": "Qwen/Qwen2.5-Coder-32B-Instruct",
        "qwen2.5-coder-7b-instruct": "Qwen/Qwen2.5-Coder-7B-Instruct",
    }
)
"""KAITO's own short names, in its catalogue of today or of a former release, with the ids of the
hub that it says they are; newer presets are such ids. Source: kaito-project/kaito,
``pkg/utils/plugin`` (``LegacyBuiltinToCatalog``), ``presets/workspace/models/model_catalog.yaml``
and ``supported_models.yaml``, 2026-08.
"""

_COUNTED: Final = "how many nodes there are follows from the plan"

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "adapters": "adapters come from the hub or a claim: spec.model.adapters",
        "accessMode": "whether a model is gated follows from its repository",
        "count": _COUNTED,
        "nodeCountLimit": "see spec.budget.nodes",
        "instanceType": "KAITO makes nodes; here an autoscaler does, or they are there already",
        "mode": "how a GPU is divided follows from spec.placement.migProfile",
        "partition": "how a GPU is divided follows from spec.placement.migProfile",
        "preferredNodes": (
            "the plan names the nodes; write labels into spec.placement.nodeSelector"
        ),
        "selector": "it says which pods KAITO counts",
        "tuning": "nothing here trains a model",
        "roles": "prefill and decode run in the same pods",
        "labelSelector": "KAITO labels nodes by it; write labels of nodes into "
        "spec.placement.nodeSelector",
        "kaito.sh/use-local-weights": "weights come from the hub, a claim or an image: "
        "spec.model.weights",
    }
)


def read_workspace(draft: Draft, root: Spot, others: Sequence[Content]) -> Mapping[str, str]:
    """Add a Workspace to a draft; return why its fields have no place."""
    source = f"Workspace {draft.name}"
    inner = root.at("spec") if root.at("spec").is_there else root
    _inference(draft, inner.at("inference"), others, source)
    _nodes(draft, inner.at("resource"))
    return _REASONS


def read_inference_set(draft: Draft, root: Spot, others: Sequence[Content]) -> Mapping[str, str]:
    """Add an InferenceSet to a draft, a Workspace for each replica; return why its fields have no
    place.
    """
    spec = root.at("spec")
    draft.carry_number("replicas", spec.at("replicas"))
    template = spec.at("template")
    _inference(draft, template.at("inference"), others, f"InferenceSet {draft.name}")
    _nodes(draft, template.at("resource"))
    return _REASONS


def read_multi_role_inference(draft: Draft, root: Spot, _: Sequence[Content]) -> Mapping[str, str]:
    """Add a MultiRoleInference to a draft: its decode role, with the GPUs of all of them; return
    why its fields have no place.
    """
    spec = root.at("spec")
    _preset(draft, spec.at("model", "name"), f"MultiRoleInference {draft.name}")
    carry_access(draft, spec.at("model", "modelAccessSecret"), TOKEN_KEY)
    for role in spec.at("roles").each():
        if role.at("type").value == "decode":
            draft.carry_number("replicas", role.at("replicas"))
            role.at("type").take()
            _instance(draft, role.at("instanceType"))
    return _REASONS


def _inference(draft: Draft, inference: Spot, others: Sequence[Content], source: str) -> None:
    preset, template = inference.at("preset"), inference.at("template")
    if template.is_there:
        pod = template.at("spec")
        container, launch = engine_of(pod, source)
        carry_pod(draft, pod, container, [template.at("metadata")])
        carry_launch(draft, pod, container, launch)
        carry_volumes(draft, pod, container)
    elif preset.at("name").is_there:
        _preset(draft, preset.at("name"), source)
    else:
        raise InputError([not_vllm(source)])
    for place in (preset, preset.at("presetOptions")):
        carry_access(draft, place.at("modelAccessSecret"), TOKEN_KEY)
    _config(draft, inference.at("config"), others)


def _preset(draft: Draft, name: Spot, source: str) -> None:
    """Add a preset's model: an id of the hub, or one of KAITO's short names."""
    said = str(name.value or "")
    model = said if "/" in said else PRESETS.get(said.lower())
    if model:
        draft.put("model.id", model, name)
        name.take()
        return
    near = get_close_matches(said.lower(), PRESETS, n=2, cutoff=0.6)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    name.leave(f"{said} is none of KAITO's presets")
    draft.unknown = Problem(
        code="ImportUnclear",
        what=f"{source} names the preset {said!r:.80}",
        limit="which is none that KAITO had in August 2026",
        remedy=f"{meant}name the model with --model ORG/NAME",
    )


def _config(draft: Draft, name: Spot, others: Sequence[Content]) -> None:
    if not name.string:
        return
    found = next((item for item in others if _is_config_map(item, name.string)), None)
    if found is None:
        name.leave(
            f"ConfigMap {name.value} is not among the files: add it to have its options carried "
            "over"
        )
        return
    name.take()
    draft.read.add(f"ConfigMap {name.value}")
    for key, text in dict(found.get("data") or {}).items():
        if key == "inference_config.yaml":
            _options(draft, str(text), f"ConfigMap {name.value}")
        else:
            draft.leave(f"ConfigMap {name.value}: {key}", "only inference_config.yaml is read")


def config_of(content: Content) -> str:
    """Return the name of the ConfigMap with a Workspace's or InferenceSet's options, if any."""
    root = ForeignObject(value=content).root
    template = root.at("spec", "template", "inference", "config")
    return root.at("inference", "config").text() or template.text()


def _is_config_map(item: Content, name: str) -> bool:
    metadata = item.get("metadata")
    named = metadata.get("name") if isinstance(metadata, Mapping) else None
    return item.get("kind") == "ConfigMap" and named == name


def _options(draft: Draft, text: str, where: str) -> None:
    try:
        told: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        draft.leave(where, "its inference_config.yaml is no YAML")
        return
    document = ForeignObject(value=told, name=f"{where}: ", left_out=draft.document.left_out)
    options = []
    for part in document.root.at("vllm").each():
        if isinstance(part.value, str | int | float):
            value = part.take()
            options.append((part.last.replace("_", "-"), value if value is True else str(value)))
    carry_options(draft, [_negated(*option) for option in options], where)
    document.leave_the_rest({})


def _negated(name: str, value: Any) -> tuple[str, Any]:
    return (f"no-{name}", True) if value == "False" else (name, value)


def _nodes(draft: Draft, resource: Spot) -> None:
    carry_selector(draft, resource.at("labelSelector", "matchLabels"))
    if profile := resource.at("mig", "profile").string:
        carry_slices(draft, profile, resource.at("mig", "profile"))
    _instance(draft, resource.at("instanceType"))


def _instance(draft: Draft, instance: Spot) -> None:
    if text := instance.text():
        draft.add("placement.nodeSelector", {INSTANCE_TYPE: text}, instance)
