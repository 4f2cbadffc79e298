"""What is put before the engine: every sample, every golden plan, and one resource for every way to
say something to it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.engines.launch import attention_replicas_per_pod
from shardwright.hardware.gpus import Gpu, find_gpu, load_gpus
from shardwright.hardware.nodes import read_node
from shardwright.layouts.layout import DraftMethod, Layout
from shardwright.modelspec.catalogue import find_model
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Plan
from shardwright.rendering import ray
from shardwright.rendering.deployment import Deployment, SecretKey
from shardwright.rendering.place import pod_template
from shardwright.rendering.pod import script_settings
from shardwright.rendering.pod_resources import workers_per_pod
from shardwright.resolving.model import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import resolve
from tests.engine import environment
from tests.golden.planner import test_explanations, test_ladder
from tests.support.builders_cli import a_listed_node
from tests.support.builders_deployment import a_deployment, a_plan, a_plan_of
from tests.support.builders_model import A_HEAD
from tests.support.builders_nodes import a_gb200_rack
from tests.support.builders_plan import CONFIGS, a_model, an_inventory, vllm_traits
from tests.support.ranks import expanded, ranks_of

ROOT = Path(__file__).parents[2]
VERSIONS = (environment.INSTALLED, environment.UNPACKED)

_ANY_GPU = load_gpus()["H100-SXM-80GB"]
_LEADER_NAME = "leader"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A plan, how to run it, and the config.json of the model and of its draft model."""

    id: str
    plan: Plan
    deployment: Deployment
    config: Mapping[str, Any]
    draft: Mapping[str, Any] | None = None

    @property
    def gpu(self) -> Gpu:
        """Return the GPU to pretend; what the engine's CUDA platform cannot be becomes a H100."""
        found = find_gpu(self.plan.product) or load_gpus().get(self.plan.product)
        return found if found and found.compute_capability else _ANY_GPU

    def of(self, version: str) -> "Launch":
        """Return the same, run by another version of the engine."""
        return replace(self, deployment=replace(self.deployment, engine_version=version))

    def arguments(self, rank: int) -> list[str]:
        """Return what follows `vllm serve` on a rank: what all share, and what the launch script
        adds.
        """
        container = pod_template(self.plan, self.deployment, 0)["spec"]["containers"][0]
        told_of = (
            1 if ray.joins(self.plan, self.deployment) else self.plan.nodes_per_replica
        )  # Ray tells the engine of others
        added = roles(told_of, attention_replicas_per_pod(self.plan))[rank]
        return [*(expanded(word) for word in container["args"]), *added]

    def environment(self, cache_folder: str) -> dict[str, str]:
        """Return the variables of the engine that have a value of their own, with the pod's cache
        in a folder that exists.
        """
        variables = pod_template(self.plan, self.deployment, 0)["spec"]["containers"][0]["env"]
        values = {item["name"]: expanded(item["value"]) for item in variables if "value" in item}
        values |= script_settings(self.plan, self.deployment).variables
        return {name: value.replace("/cache", cache_folder) for name, value in values.items()} | {
            "VLLM_HOST_IP": "127.0.0.1"
        }

    def ranks(self) -> tuple[int, ...]:
        """Return the leader and one follower, where there is one."""
        alone = self.plan.nodes_per_replica == 1 or ray.joins(self.plan, self.deployment)
        return (0,) if alone else (0, 1)

    def job(self, rank: int, folder: Path, shape_of: int | None = None) -> dict[str, Any]:
        """Return a question to the checker about a rank's arguments, and about the bytes of a GPU's
        part of the model.
        """
        model, draft = (folder / f"{self.id.replace('/', '--')}{kind}" for kind in ("", " small"))
        for place, config in ((model, self.config), (draft, self.draft)):
            if config is not None:
                _put(place, json.dumps(config))
        return {
            "arguments": self.arguments(rank),
            "environment": self.environment(str(folder)),
            "model": str(model),
            "draft": None if self.draft is None else str(draft),
            "gpus": workers_per_pod(self.plan),
            "gpuBytes": self.gpu.memory_bytes,
            "capability": self.gpu.compute_capability,
            "rank": shape_of,
        }


def _put(folder: Path, config: str) -> None:
    """Write a config where it is not there yet: the other version of the engine may be reading
    it.
    """
    file = folder / "config.json"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        file.write_text(config)


def has_weights_that_draft(launch: Launch) -> bool:
    """Return whether a launch drafts with weights of its own, not by looking up the prompt."""
    return launch.deployment.drafting.drafts_by not in (None, DraftMethod.PROMPT_LOOKUP)


@cache
def roles(nodes: int, attention_replicas: int) -> tuple[tuple[str, ...], ...]:
    """Return what the launch script adds on every rank of a group of so many nodes, by running it
    against a stub engine.
    """
    ranks = nodes * max(1, attention_replicas)
    layout = (
        Layout(attention_data=ranks, expert=ranks)
        if attention_replicas
        else Layout(tensor=8, pipeline=nodes)
    )
    plan, deployment = a_plan_of(layout, nodes=nodes), a_deployment()
    with TemporaryDirectory() as folder, ranks_of(plan, deployment, Path(folder)) as started:
        leader = started[0].environment.get("SHARDWRIGHT_LEADER", _LEADER_NAME)
        (Path(folder) / "hosts").write_text(f"{leader} 127.0.0.1\n")
        for rank in started:
            rank.start()
        return tuple(tuple(rank.engine()["argv"][1 + len(rank.arguments) :]) for rank in started)


@cache
def launches() -> tuple[Launch, ...]:
    """Return all of them, each id once."""
    found = tuple(_each())
    assert len({launch.id for launch in found}) == len(found)
    return found


def first_deployable() -> Launch:
    """Return the first of them that runs, without planning the others."""
    return next(launch for launch in _each() if launch.plan.deployable)


def _each() -> Iterator[Launch]:
    yield from _samples()
    yield from _goldens()
    yield from _features()


def _samples() -> Iterator[Launch]:
    """Yield the samples as they are planned on the example fleet, where something of them is
    deployed.
    """
    fleet = yaml.safe_load((ROOT / "examples/fleet/nodes.yaml").read_text())["items"]
    nodes = [item for item in fleet if item["kind"] == "Node"]
    for path in sorted((ROOT / "manifests/samples").glob("*.yaml")):
        launch = planned(
            f"sample {path.stem}", parse_manifest(yaml.safe_load(path.read_text())), nodes
        )
        if launch is not None:
            yield launch


def _goldens() -> Iterator[Launch]:
    """Yield the bundle that a person has read, and the plans of the ladder and of the
    explanations.
    """
    config = CONFIGS["llama-405b"]
    deployment = a_deployment(
        hub_token=SecretKey(name="hub", key="token"), arguments={"enable-prefix-caching": True}
    )
    yield Launch(id="golden bundle", plan=a_plan(), deployment=deployment, config=config)
    cases = {
        case.id: (case.model, case.pool, case.request) for case in test_ladder.CASES
    } | test_explanations.CASES
    for name, (model, pool, request) in cases.items():
        plan = make_plan(a_model(model), an_inventory(pool), request, vllm_traits()).outcome
        if isinstance(plan, Plan) and plan.deployable:
            yield Launch(
                id=f"golden {name}",
                plan=plan,
                deployment=a_deployment(model=model),
                config=CONFIGS[model],
            )


LLAMA, QWEN_MOE = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B"
REVISION = "0123456789abcdef0123456789abcdef01234567"

ADAPTERS = [
    {"name": "support", "uri": "pvc://adapters/support/v3"},
    {"name": "team/sql:v2", "uri": f"hf://acme/sql@{REVISION}"},
]


def drafted_by(model: str, uri: str = "") -> dict[str, Any]:
    return {
        "speculation": {
            "method": "DraftModel",
            "tokens": 3,
            "acceptancePercent": 60,
            "head": {"id": model, "uri": uri or f"hf://{model}@{REVISION}"},
        }
    }


def looked_up(tokens: int) -> dict[str, Any]:
    method = {"method": "PromptLookup", "tokens": tokens, "acceptancePercent": 60}
    return {"speculation": method}


FEATURES: dict[str, dict[str, Any]] = {
    "tensor in the node and pipeline across": {"parallelism": {"tensor": 8, "pipeline": 2}},
    "uneven layers": {"parallelism": {"tensor": 2, "partition": [17, 15]}},
    "tensor over the trays of a rack": {"parallelism": {"tensor": 8, "pipeline": 1}},
    "experts whole": {"model": {"id": QWEN_MOE}, "parallelism": {"tensor": 4, "expert": 4}},
    "attention replicas": {
        "model": {"id": QWEN_MOE},
        "parallelism": {"dataParallelAttention": 4, "expert": 4},
    },
    "attention replicas on two nodes": {
        "model": {"id": QWEN_MOE},
        "parallelism": {"dataParallelAttention": 16, "expert": 16},
    },
    "attention replicas of four GPUs on two nodes": {
        "model": {"id": QWEN_MOE},
        "parallelism": {"tensor": 4, "dataParallelAttention": 4, "expert": 16},
    },
    "weights quantized while loading": {"model": {"id": LLAMA, "quantization": "FP8"}},
    "computed in FP16": {"model": {"id": LLAMA, "quantization": "FP16"}},
    "K/V in FP8": {"engine": {"kvCacheQuantization": "FP8"}},
    "K/V in the memory of the node": {"engine": {"kvOffload": {"hostMemory": "16Gi"}}},
    "K/V in the memory of two nodes": {
        "engine": {"kvOffload": {"hostMemory": "16Gi"}},
        "parallelism": {"tensor": 8, "pipeline": 2},
    },
    "drafts looked up in the prompt": {"engine": looked_up(3)},
    "drafts by Llama": {
        "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
        "parallelism": {"tensor": 4},
        "engine": drafted_by("meta-llama/Llama-3.2-1B-Instruct"),
    },
    "drafts by Qwen2": {
        "model": {"id": "Qwen/Qwen2.5-32B-Instruct"},
        "parallelism": {"tensor": 2},
        "engine": drafted_by("Qwen/Qwen2.5-7B-Instruct", "pvc://drafts/qwen"),
    },
    "drafts by Qwen3 beside whole experts": {
        "model": {"id": QWEN_MOE},
        "parallelism": {"tensor": 4, "expert": 4},
        "engine": drafted_by("Qwen/Qwen3-0.6B") | {"kvCacheQuantization": "FP8"},
    },
    "drafts by Mistral over more ranks than K/V heads and two nodes": {
        "model": {"id": "mistralai/Mistral-Nemo-Instruct-2407"},
        "parallelism": {"tensor": 16},
        "engine": drafted_by("mistralai/Mistral-Nemo-Instruct-2407"),
    },
    "drafts beside adapters": {
        "model": {"id": LLAMA, "adapters": ADAPTERS},
        "engine": drafted_by("meta-llama/Llama-3.2-1B-Instruct"),
    },
    "drafts by MTP layers": {
        "model": {"id": "zai-org/GLM-4.5-Air"},
        "parallelism": {"tensor": 4},
        "engine": {"speculation": {"method": "MTP"}},
    },
    "drafts by MTP layers beside attention replicas on two nodes": {
        "model": {"id": "deepseek-ai/DeepSeek-V3"},
        "parallelism": {"dataParallelAttention": 16, "expert": 16},
        "engine": {"speculation": {"method": "MTP", "tokens": 2}},
    },
    "drafts by an EAGLE-3 head": {
        "model": {"id": LLAMA},
        "parallelism": {"tensor": 2},
        "engine": {
            "speculation": {
                "method": "EAGLE3",
                "tokens": 3,
                "head": {"id": "acme/head", "uri": f"hf://acme/head@{REVISION}", "config": A_HEAD},
            }
        },
    },
    "weights on a claim": {"model": {"id": LLAMA, "weights": {"uri": "pvc://weights/llama/8b"}}},
    "another name": {"model": {"id": LLAMA, "servedName": "llama:8b"}},
    "weights kept on a claim": {"model": {"id": LLAMA, "weights": {"cache": {"claimName": "hub"}}}},
    "weights read by a streamer": {"model": {"id": LLAMA, "loadFormat": "RunAIStreamer"}},
    "weights read by fastsafetensors": {"model": {"id": LLAMA, "loadFormat": "FastSafetensors"}},
    "weights of single ranks": {
        "model": {"id": LLAMA, "loadFormat": "ShardedState", "weights": {"uri": "pvc://weights"}}
    },
    "adapters of a claim and of the hub": {
        "model": {"id": LLAMA, "adapters": ADAPTERS, "maxAdapterRank": 64},
        "parallelism": {"tensor": 2, "pipeline": 2},
    },
    "adapters of experts": {
        "model": {"id": QWEN_MOE, "adapters": ADAPTERS},
        "parallelism": {"tensor": 4, "expert": 4},
    },
    "adapters of experts in slices": {
        "model": {"id": QWEN_MOE, "adapters": ADAPTERS},
        "parallelism": {"tensor": 4, "expert": 1},
        "engine": looked_up(16),
    },
    "a pinned revision": {"model": {"id": LLAMA, "revision": REVISION}},
    "options that the plan counts": {
        "engine": {
            "args": {
                "block-size": 32,
                "cudagraph-capture-sizes": "1 2 4",
                "gpu-memory-utilization": 0.85,
                "max-num-batched-tokens": 4096,
                "max-num-seqs": 64,
            }
        }
    },
    "nothing captured": {"engine": {"args": {"enforce-eager": True}}},
    "a compilation config": {
        "engine": {
            "args": {
                "compilation-config": '{"cudagraph_mode": "FULL_DECODE_ONLY", "mode": 0, "pass_config": {}}'
            }
        }
    },
    "parsers of the family": {"model": {"id": "Qwen/Qwen3-8B"}},
    "prompts alone": {"phase": "Prefill"},
    "answers alone, on two nodes": {"phase": "Decode", "parallelism": {"tensor": 16}},
    "arguments of a user": {
        "engine": {
            "args": {
                "enable-prefix-caching": False,
                "seed": 7,
                "disable-uvicorn-access-log": True,
                "override-generation-config": '{"temperature": 0.5}',
                "response-role": "$(HF_TOKEN) `id`; --trust-remote-code",
            }
        }
    },
}
"""What a resource can say to the engine, one at a time, on two nodes of eight H100."""


IN_A_RACK = {"tensor over the trays of a rack"}
"""Those of them on trays of GB200 instead."""


def _features() -> Iterator[Launch]:
    hosts = [a_listed_node("h100-a"), a_listed_node("h100-b")]
    for name, spec in FEATURES.items():
        nodes = a_gb200_rack(trays=4) if name in IN_A_RACK else hosts
        manifest = {
            "apiVersion": "shardwright.io/v1alpha1",
            "kind": "ShardedModel",
            # As the half of a pair must be named.
            "metadata": {"name": f"m-{spec['phase'].lower()}" if "phase" in spec else "m"},
        }
        launch = planned(
            f"feature {name}",
            parse_manifest(manifest | {"spec": {"model": {"id": LLAMA}} | spec}),
            nodes,
        )
        assert launch is not None, name
        yield launch


def planned(name: str, resource: ShardedModel, nodes: list[dict[str, Any]]) -> Launch | None:
    subject = resolve(Question(resource=resource))
    facts = [fact for fact in map(read_node, nodes) if fact is not None]
    plan = plan_serving(subject, take_stock(subject, facts, ())).outcome
    entry = find_model(resource.spec.model.id)
    if not isinstance(plan, Plan) or not plan.deployable or entry is None:
        return None
    speculation = resource.spec.engine.speculation
    head = speculation.head if speculation else None
    known = find_model(head.id) if head else None
    return Launch(
        id=name,
        plan=plan,
        deployment=subject.deployment,
        config=entry.config,
        draft=known.config if known else head.config if head else None,
    )
