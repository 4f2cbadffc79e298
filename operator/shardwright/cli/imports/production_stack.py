"""The values of the chart of vLLM's production stack: each entry of ``modelSpec`` is a model.

Shapes as of the chart of vllm-project/production-stack, 2026-08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shardwright.cli.imports.command_line import Value, carry_options, launch_with
from shardwright.cli.imports.draft import Content, Draft
from shardwright.cli.imports.pods import (
    MIG,
    carry_environment,
    carry_image,
    carry_quantity,
    carry_resources,
    carry_selector,
    carry_slices,
    carry_tolerations,
)
from shardwright.cli.imports.source import Spot, leave_together
from shardwright.cli.imports.storage import carry_model
from shardwright.hardware.untrusted import mapping, mappings

VALUES: Final = "values of production-stack"
"""What stands for the kind of values, which have none."""

_FOLLOWS_PREFIXES: Final = frozenset({"prefixaware", "kvaware"})
"""Kinds of ``routingLogic`` that ``spec.routing.mode: Router`` stands for."""

_OF_CHART: Final = "it is for the other parts of the chart"

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cacheserverSpec": _OF_CHART,
        "chatTemplate": "the model brings its chat template",
        "hf_token": "a token belongs into a Secret: spec.model.weights.secretRef",
        "keda": "KEDA is told by spec.scaling, with the plan's own threshold",
        "lmcacheConfig": "see spec.engine.kvOffload",
        "loraController": _OF_CHART,
        "nodeSelectorTerms": "write labels into spec.placement.nodeSelector",
        "pvcStorage": "see spec.model.weights.cache",
        "raySpec": "the engine joins its ranks itself; see spec.engine.executor",
        "routerSpec": "clients reach the model at status.endpoint",
        "shmSize": "shared memory follows from the plan",
        "sharedStorage": "see spec.model.weights.cache",
        "vllmApiKey": "a key belongs into a Secret: spec.engine.apiKeySecretRef",
    }
)


def models_of(content: Content) -> Sequence[Content]:
    """Return the values once for each model that is enabled, first in its list, before those that
    are not.
    """
    engines = mapping(content.get("servingEngineSpec"))
    entries = engines.get("modelSpec")
    on = [item for item in mappings(entries) if item.get("enabled") is not False]
    off = [item for item in entries if item not in on] if isinstance(entries, list) else []
    return [{**content, "servingEngineSpec": {**engines, "modelSpec": [item, *off]}} for item in on]


def read_values(draft: Draft, root: Spot, _: Sequence[Content]) -> Mapping[str, str]:
    """Add the first model of the values to a draft; return why fields have no place."""
    engines = root.at("servingEngineSpec")
    model, *others = engines.at("modelSpec").each()
    for other in others:
        other.leave("it is not enabled")
    draft.name = model.at("name").text() or draft.name
    model.at("enabled").take()
    carry_image(draft, _image(model), model.at("repository"), model.at("tag"))
    _model(draft, model.at("modelURL"))
    _options(draft, model.at("vllmConfig"))
    _resources(draft, model)
    _secrets(draft, engines, model)
    carry_environment(draft, model.at("env"))
    carry_selector(draft, model.at("nodeSelector"))
    for place in (engines, model):
        carry_tolerations(draft, place.at("tolerations"))
        draft.carry("pod.runtimeClassName", place.at("runtimeClassName"))
        draft.carry("pod.imagePullPolicy", place.at("imagePullPolicy"))
        draft.carry("pod.priorityClassName", place.at("priorityClassName"))
    draft.carry_number("replicas", model.at("replicaCount"))
    _routing(draft, root.at("routerSpec"))
    return _REASONS


def _routing(draft: Draft, router: Spot) -> None:
    """Have requests follow their prefixes if the router of the values lets them."""
    logic = router.at("routingLogic")
    if router.at("enableRouter").value is False or logic.string not in _FOLLOWS_PREFIXES:
        return
    router.at("enableRouter").take()
    logic.take()
    draft.put("routing.mode", "Router", logic)


def _image(model: Spot) -> str:
    parts = [str(model.at(key).value) for key in ("repository", "tag") if model.at(key).is_there]
    return ":".join(parts)


def _model(draft: Draft, url: Spot) -> None:
    text = url.text()
    if "://" in text:
        draft.put("model.weights.uri", text, url)
    elif text:
        carry_model(draft, text, url.path, None)


def _options(draft: Draft, config: Spot) -> None:
    """Add options that the chart makes of fields: their names with dashes, false as a negative."""
    options: list[tuple[str, Value]] = []
    for part in config.each():
        name = re.sub("([A-Z])", lambda found: f"-{found[0].lower()}", part.last)
        value = part.value
        if part.last == "extraArgs" and isinstance(value, list):
            launch = launch_with(part.words)
            options += [*launch.options, *([("model", launch.model)] if launch.model else [])]
        elif isinstance(value, bool):
            options.append((name if value else f"no-{name}", True))
        elif isinstance(value, str | int | float) and value != "":
            options.append((name, str(value)))
        else:
            continue
        part.take()
    carry_options(draft, options, config.path)


def _resources(draft: Draft, model: Spot) -> None:
    for field, first, second in (
        ("cpu", "requestCPU", "limitCPU"),
        ("memory", "limitMemory", "requestMemory"),
    ):
        carry_quantity(draft, f"pod.resources.{field}", model.at(first), model.at(second))
    carry_resources(draft, model.at("resources"))
    kind = model.at("requestGPUType")
    if kind.string.startswith(MIG):
        carry_slices(draft, kind.string.removeprefix(MIG), kind)
    leave_together(
        [model.at("requestGPU"), kind] if kind.is_open else [model.at("requestGPU")],
        "how many GPUs a pod has follows from the plan",
    )


def _secrets(draft: Draft, engines: Spot, model: Spot) -> None:
    for secret, field in (
        (model.at("hf_token"), "model.weights.secretRef"),
        (engines.at("vllmApiKey"), "engine.apiKeySecretRef"),
    ):
        names = {"name": secret.at("secretName"), "key": secret.at("secretKey")}
        if names["name"].string:
            said: dict[str, Any] = {
                key: text for key, part in names.items() if (text := part.text())
            }
            draft.put(field, said, secret)
    if name := model.at("imagePullSecret").text():
        draft.put("pod.imagePullSecrets", [{"name": name}], model.at("imagePullSecret"))
