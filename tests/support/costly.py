"""Specs and configs that the API server admits, made to cost as much as possible: each is a choice
of one value by name.

A choice can be drawn, changed in a place or two, and crossed with another one, so that a search
finds which of them cost most.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from shardwright.engines.environment import COMMON
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.layout import MOST_REPLICAS
from shardwright.modelspec.catalogue import known_ids
from shardwright.pipeline.assembly import bundle_for
from shardwright.reconcile.planner_work import Planned
from shardwright.resolving.engine import ENGINE_TEXT_MAX_BYTES
from shardwright.resolving.subject import Subject
from tests.support.builders_plan import a_network, a_pool
from tests.support.builders_resource import a_sharded_model
from tests.support.deep_model import DEEP_CONFIG

Choice = Mapping[str, Any]
"""By the name of each thing to choose, what is chosen."""

CONFIG_BYTES: Final = 250_000
"""Of what an inline config is filled with: a little less than is read. Of a ConfigMap it is four
times as much.
"""

CHOICES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "model": ("own", "catalogue"),
        "catalogue": tuple(known_ids()),
        "source": ("inline", "ConfigMap"),
        "layers": (60, 1, 256, 1021, 1024),
        "heads": (64, 1, 1021, 4096),
        "kv_heads": (8, 1, 64, 4096),
        "width": (4096, 64, 16384, 1 << 20),
        "experts": (0, 8, 256, 8192),
        "layer_types": ("", "alternating", "random"),
        "quantization": ("", "fp8", "awq", "gptq", "compressed-tensors", "modelopt"),
        "patterns": (0, 1, 16, 64, 4096, 16384),
        "ways": ("", "(a|b)(a|b)", "(a|b)" * 6, "[0-9]*" * 8, ".*" * 16),
        "filling": ("", "keys", "objects", "text", "nested"),
        "input_tokens": (2048, 1, 131_072, 5_000_000),
        "output_tokens": (512, 1, 8192, 5_000_000),
        "arrival": (
            {},
            {"concurrency": 1},
            {"concurrency": 65_536},
            {"requestsPerSecond": 100_000},
            {"requestsPerSecond": 0.001},
        ),
        "drafting": ("", "PromptLookup", "DraftModel"),
        "replicas": (1, 7, 64, 1000),
        "budget": (
            {},
            {"gpus": 100_000},
            {"gpus": 100_000, "nodes": 10_000, "fill": True},
            {"gpus": 1021, "fill": True},
        ),
        "objective": (
            {},
            {"optimizeFor": "Latency"},
            {"optimizeFor": "Throughput"},
            {
                "optimizeFor": "Latency",
                "ttftMilliseconds": 1,
                "tpotMilliseconds": 1,
                "statistic": "P95",
            },
            {
                "optimizeFor": "Throughput",
                "ttftMilliseconds": 3_600_000,
                "tpotMilliseconds": 60_000,
                "statistic": "P95",
            },
        ),
        "parallelism": (
            {},
            {"tensor": 1},
            {"tensor": 8},
            {"pipeline": 16},
            {"tensor": 1, "pipeline": 256},
        ),
        "adapters": (0, 1, 32),
        "tolerations": (0, 32),
        "variables": (0, 1, 64),
        "engine": ("vLLM", "TensorRTLLM"),
        "nodes": (5000, 500, 8),
        "pools": (1, 4, 16, 64),
        "free": ("all", "none", "mixed", "one"),
    }
)
"""What there is to choose from; first what most resources have."""

PLAIN: Final = 0.5
"""Chance that a choice which is drawn has the first of the values: one odd value too many, and the
API server or we refuse it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """Which objects does a plan turn into? The answer is how many they are, and their bytes."""

    subject: Subject
    planned: Planned

    def answer(self) -> tuple[int, int]:
        """Return them."""
        record = self.planned.replanned.record
        if record is None or record.plan.undeployable:
            return 0, 0
        objects = bundle_for(self.subject, record.plan).objects
        return len(objects), sum(len(json.dumps(item)) for item in objects)


def drawn(dice: random.Random) -> Choice:
    """Return a choice of everything."""
    return {
        name: values[0] if dice.random() < PLAIN else dice.choice(values)
        for name, values in CHOICES.items()
    }


def changed(choice: Choice, dice: random.Random) -> Choice:
    """Return a choice that differs in one to three places."""
    names = dice.sample(list(CHOICES), dice.randint(1, 3))
    return {**choice, **{name: dice.choice(CHOICES[name]) for name in names}}


def crossed(one: Choice, other: Choice, dice: random.Random) -> Choice:
    """Return what takes each of its values from one of two choices."""
    return {name: dice.choice((one, other))[name] for name in CHOICES}


def resource_of(choice: Choice) -> tuple[dict[str, Any], str | None]:
    """Return the resource as the API server holds it, and the text of the ConfigMap that it
    names.
    """
    spec = _spec(choice)
    text = None
    if choice["model"] == "catalogue":
        spec["model"] = {"id": choice["catalogue"], **_adapters(choice)}
    else:
        config = _config(choice)
        spec["model"] = {"id": "costly/model", **_adapters(choice)}
        if choice["source"] == "inline":
            spec["model"]["config"] = config
        else:
            spec["model"]["configMapRef"] = {"name": "costly"}
            text = json.dumps(config)
    manifest = a_sharded_model("model", "models")
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "uid", "generation": 1},
        "spec": spec,
    }, text


@cache
def inventory_of(nodes: int, pools: int, free: str) -> Inventory:
    """Return so many nodes, dealt to pools of different products, speeds or prices."""
    gpus = [gpu for gpu in load_gpus().values() if gpu.vendor == "NVIDIA"]
    made = []
    for number in range(pools):
        gpu = gpus[(7 * number) % len(gpus)] if pools > 1 else load_gpus()["H100-SXM-80GB"]
        count = max(1, nodes // pools)
        wide = gpu.scale_up_gpus > 16
        trays = 4 if wide else 8
        pool = a_pool(
            gpu,
            count,
            name=f"pool-{number}",
            gpus_per_node=trays,
            domain_nodes=min(count, gpu.scale_up_gpus // trays) if wide else 1,
            network=a_network((100, 200, 400, 800)[number % 4]),
            free=_free(free, count, trays),
        )
        made.append(replace(pool, gpu_hour_price=1.0 + number) if number % 2 else pool)
    return Inventory(pools=tuple(made))


def _free(free: str, nodes: int, gpus: int) -> dict[int, int]:
    if free == "all":
        return {}
    left: dict[str, Callable[[int], int]] = {
        "none": lambda _: 0,
        "one": lambda _: 1,
        "mixed": lambda node: node * 5 % (gpus + 1),
    }
    return {node: left[free](node) for node in range(nodes)}


def _spec(choice: Choice) -> dict[str, Any]:
    budget = choice["budget"]
    spec: dict[str, Any] = {
        "budget": budget,
        "objective": choice["objective"],
        "workload": _workload(choice),
        "placement": {
            "tolerations": [
                {"key": f"t{number}.{'k' * 50}/{'n' * 60}", "operator": "Exists"}
                for number in range(choice["tolerations"])
            ]
        },
        "engine": _engine(choice),
        "parallelism": choice["parallelism"],
    }
    if not budget.get("fill"):
        spec["replicas"] = choice["replicas"]
    return {name: value for name, value in spec.items() if value}


def _engine(choice: Choice) -> dict[str, Any]:
    names = sorted(COMMON)[: choice["variables"]]
    room = (ENGINE_TEXT_MAX_BYTES // MOST_REPLICAS - len("".join(names))) // max(1, len(names))
    variables = {"env": [{"name": name, "value": "$" * min(4096, room)} for name in names]}
    image = {"name": "TensorRTLLM", "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1"}
    drafts = {"method": choice["drafting"], "tokens": 16, "acceptancePercent": 60}
    head = {
        "id": "costly/draft",
        "uri": f"hf://costly/draft@{'0' * 40}",
        "config": {**DEEP_CONFIG, "hidden_size": 64},
    }
    if choice["drafting"] == "DraftModel":
        drafts["head"] = head
    return {
        **variables,
        **(image if choice["engine"] == "TensorRTLLM" else {}),
        **({"speculation": drafts} if choice["drafting"] else {}),
    }


def _workload(choice: Choice) -> dict[str, Any]:
    return {
        "inputTokens": choice["input_tokens"],
        "outputTokens": choice["output_tokens"],
        **choice["arrival"],
    }


def _adapters(choice: Choice) -> dict[str, Any]:
    hub = f"hf://{'a' * 90}/{'b' * 90}@{'f' * 40}"
    named = [{"name": f"{'n' * 180}{number}", "uri": hub} for number in range(choice["adapters"])]
    return {"adapters": named, "maxAdapterRank": 512} if named else {}


def _config(choice: Choice) -> dict[str, Any]:
    heads, layers = choice["heads"], choice["layers"]
    config: dict[str, Any] = {
        **DEEP_CONFIG,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": min(heads, choice["kv_heads"]),
        "hidden_size": choice["width"],
        "head_dim": 128,
        "intermediate_size": choice["width"],
        "max_position_embeddings": 1 << 24,
    }
    if choice["experts"]:
        config |= {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        config |= {
            "num_local_experts": choice["experts"],
            "num_experts_per_tok": min(8, choice["experts"]),
        }
    if choice["layer_types"]:
        config |= {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "sliding_window": 4096,
        }
        kinds = ("sliding_attention", "full_attention")
        dice = random.Random(layers)  # noqa: S311 - the same list for the same layers is wanted
        config["layer_types"] = [
            kinds[layer % 2] if choice["layer_types"] == "alternating" else dice.choice(kinds)
            for layer in range(layers)
        ]
    room = CONFIG_BYTES * (4 if choice["source"] == "ConfigMap" else 1) - len(json.dumps(config))
    if choice["quantization"]:
        config["quantization_config"] = _within(_quantization(choice), room)
        room -= len(json.dumps(config["quantization_config"]))
    return {**config, **_filling(choice["filling"], max(0, room - 1000))}


def _within(method: dict[str, Any], room: int) -> dict[str, Any]:
    """Return it, with as many entries of its lists as there is room for."""
    while len(json.dumps(method)) > room:
        method = {name: _half(value) for name, value in method.items()}
    return method


def _half(value: Any) -> Any:
    if isinstance(value, list):
        return value[: len(value) // 2]
    return dict(list(value.items())[: len(value) // 2]) if isinstance(value, dict) else value


def _quantization(choice: Choice) -> dict[str, Any]:
    count, ways = choice["patterns"], choice["ways"]
    listed = [
        f"re:.*x{number}{ways}.*" if ways else f"model.layers.{number}.mlp"
        for number in range(count)
    ]
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "fp8": lambda: {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "modules_to_not_convert": listed,
        },
        "awq": lambda: {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 128,
            "modules_to_not_convert": listed,
        },
        "gptq": lambda: {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "dynamic": {f"-:.*{number}{ways}.*": {} for number in range(count)},
        },
        "compressed-tensors": lambda: {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": {
                f"g{number}": {
                    "targets": [f"re:.*{number}{ways}.*"],
                    "weights": {"num_bits": 8, "type": "float"},
                }
                for number in range(count or 1)
            },
            "ignore": listed,
        },
        "modelopt": lambda: {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                f"model.layers.{number}.mlp.{ways}": {"quant_algo": "FP8"}
                for number in range(count or 1)
            },
            "ignore": listed,
        },
    }
    return made[choice["quantization"]]()


def _filling(kind: str, room: int) -> dict[str, Any]:
    """Return what a config may have beside its architecture: as much of it as there is room for."""
    nested: Any = []
    for _ in range(20):
        nested = [nested, nested] if len(json.dumps(nested)) < room // 3 else [nested]
    filled: dict[str, dict[str, Any]] = {
        "": {},
        "keys": {"more": {f"k{number}": number for number in range(room // 16)}},
        "objects": {"more": [{}] * (room // 4)},
        "text": {"more": "\u00e9" * (room // 6)},
        "nested": {"more": nested},
    }
    return filled[kind]
