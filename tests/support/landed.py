"""The one snapshot which upgrades are tested from, of models that serve and of the chart's values;
``tests/data/landed`` says how it is made.
"""

from __future__ import annotations

import json
import lzma
import shutil
import zlib
from base64 import b64decode, b64encode
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from shardwright.reconcile.observed import object_key
from tests.support.builders_chart import CHART, STORED
from tests.support.builders_snapshot import OWNER, TWO_NODES, Operator
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

SNAPSHOT = Path(__file__).parents[1] / "data" / "landed" / "models.json.xz"
NODES = 6
"""Nodes of 8 H100 on which they are planned."""
SETTLED = 900
"""Seconds in which whatever an operator begins has come to an end."""

_ONE: dict[str, Any] = {"parallelism": {"tensor": 8, "pipeline": 1}}
_SMALL = "meta-llama/Llama-3.1-8B-Instruct"
_TRT = {"name": "TensorRTLLM", "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1"}
_LOAD = {"inputTokens": 1024, "outputTokens": 256, "concurrency": 16}

MODELS: dict[str, dict[str, Any]] = {
    "smallest": {},
    "one whole node": _ONE,
    "two nodes": TWO_NODES,
    "four replicas": {"replicas": 4},
    "three replicas of two nodes": TWO_NODES | {"replicas": 3, "rollout": {"maxUnavailable": 2}},
    "over Ray": TWO_NODES | {"engine": {"name": "vLLM", "executor": "Ray"}},
    "arguments and environment": {
        "engine": {"args": {"seed": 7}, "env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}
    },
    "API key": {"engine": {"apiKeySecretRef": {"name": "clients", "key": "key"}}},
    "readiness by health alone": TWO_NODES | {"readiness": {"tokens": False}},
    "cache of every pod": TWO_NODES
    | {
        "model": {
            "id": "meta-llama/Llama-3.1-405B-Instruct",
            "weights": {"secretRef": {"name": "hub", "key": "token"}, "cache": {"storage": "1Ti"}},
        }
    },
    "weights on a claim": _ONE | {"model": {"id": _SMALL, "weights": {"uri": "pvc://w/8b"}}},
    "adapters": {
        "model": {
            "id": _SMALL,
            "adapters": [{"name": "support", "uri": f"hf://acme/support@{'f' * 40}"}],
            "maxAdapterRank": 64,
        }
    },
    "quantized while loading": {"model": {"id": _SMALL, "quantization": "FP8"}},
    "cache of 8 bits": {"workload": _LOAD, "engine": {"kvCacheQuantization": "FP8"}},
    "experts": {"model": {"id": "deepseek-ai/DeepSeek-V3"}, "workload": _LOAD},
    "attention replicas": {
        "model": {"id": "Qwen/Qwen3-235B-A22B-FP8"},
        "parallelism": {"tensor": 2, "dataParallelAttention": 4, "expert": 8},
    },
    "older vLLM": TWO_NODES | {"engine": {"version": "0.32.0"}},
    "Kueue": TWO_NODES | {"placement": {"scheduler": "Kueue", "queue": "serving"}},
    "TensorRT-LLM over two nodes": TWO_NODES | {"engine": _TRT},
    "pods with resources": _ONE
    | {
        "pod": {
            "resources": {"cpu": "16", "memory": "64Gi"},
            "runtimeClassName": "nvidia",
            "imagePullSecrets": [{"name": "registry"}],
        }
    },
}
"""What is asked of each model, by name. A name of the API that changes is changed here with it."""


@cache
def landed() -> dict[str, dict[str, Any]]:
    """Return the models of the snapshot by name: ``spec``, ``status``, ``objects``, ``revisions``
    by name with their texts, and the uids of ``pods`` by name.
    """
    found: dict[str, dict[str, Any]] = json.loads(lzma.decompress(SNAPSHOT.read_bytes()))
    return found


def taken_over(name: str) -> Operator:
    """Return an operator of this release that finds a model serving as the snapshot has it, before
    its first reconcile.
    """
    model = json.loads(json.dumps(landed()[name]))
    cluster = _cluster()
    cluster.objects = {object_key(item): item for item in model["objects"]}
    cluster.revisions = {
        name: item | {"data": {"zlib": b64encode(zlib.compress(text.encode())).decode()}}
        for name, (item, text) in model["revisions"].items()
    }
    cluster.settle()
    for pod, uid in model["pods"].items():
        cluster.pods[pod]["metadata"]["uid"] = uid
    cluster.pass_time(LOAD_SECONDS)
    return Operator(cluster, model["spec"], status=model["status"])


def _cluster() -> SmallCluster:
    cluster = SmallCluster(uids=count(1000))
    cluster.add_nodes(NODES)
    return cluster


def _served(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a model as this release's operator leaves it when it serves."""
    cluster = _cluster()
    operator = Operator(cluster, spec)
    status = operator.run(SETTLED).status
    ready = next(item for item in status["conditions"] if item["type"] == "Ready")
    assert ready["reason"] == "Serving", (OWNER.name, spec, ready)
    return {
        "spec": spec,
        "status": status,
        "objects": [item for _, item in sorted(cluster.objects.items())],
        # As text: what is packed twice stays large.
        "revisions": {
            name: ({**item, "data": {}}, zlib.decompress(b64decode(item["data"]["zlib"])).decode())
            for name, item in cluster.revisions.items()
        },
        "pods": {name: pod["metadata"]["uid"] for name, pod in cluster.pods.items()},
    }


def main() -> None:
    """Replace the snapshot with what this release makes of the models, and with its values."""
    found = {name: _served(spec) for name, spec in MODELS.items()}
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), default=str)
    SNAPSHOT.write_bytes(lzma.compress(text.encode()))
    shutil.copy(CHART / "values.yaml", STORED)


if __name__ == "__main__":
    main()
