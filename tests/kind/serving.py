"""ShardedModels that a real engine serves on the kind cluster, seen from a client in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.harness.waiting import wait_for
from tests.kind import cluster as cluster_module
from tests.kind import docker, engine, images, release
from tests.kind.cluster import GPUS_PER_NODE, MODELS_FOLDER, RUNTIME_CLASS, Cluster
from tests.kind.shell import step
from tests.kind.tiny_model import CONFIG

NAMESPACE = "models"
CLIENT = "client"
MODEL_ID = "tests/tiny"
IMAGE_VARIABLE = "SHARDWRIGHT_ENGINE_IMAGE"
"""Names the engine's image on a cluster that is not ours."""

READY_SECONDS = 1200  # 80 s on quiet cores; the compiler of the first start takes most of it

PROMPTS = ([10, 20, 30], [100, 101, 102, 103], [7], [400, 3, 250, 99, 12])
TOKENS = 16

_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
KV_BYTES = 1 << 30
"""What each worker is told to take for K/V: the engine's own variable, in GiB."""

KV_BLOCK_TOKENS = 128
"""Tokens of a block of this build of the engine (vLLM 0.32 `platforms/cpu.py`)."""

_ASK = """
import json, sys, urllib.request
url, body = sys.argv[1], sys.argv[2]
request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=120).read().decode())
"""


@dataclass(frozen=True)
class Layout:
    """Pinned degrees."""

    tensor: int
    pipeline: int


def namespace_objects() -> list[dict[str, Any]]:
    """A namespace that takes only restricted pods, and the models as a claim that many may read."""
    volume = {"name": "models", "capacity": {"storage": "1Gi"}, "modes": ["ReadOnlyMany"]}
    spec: dict[str, Any] = {"accessModes": volume["modes"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {**spec, "capacity": volume["capacity"], "hostPath": {"path": MODELS_FOLDER}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": NAMESPACE},
            "spec": {**spec, "volumeName": "models", "resources": {"requests": volume["capacity"]}},
        },
    ]


def client_pod(image: str) -> dict[str, Any]:
    """A pod with Python that does nothing: requests are sent from it as an application would."""
    container = {
        "name": "client",
        "image": image,
        "command": ["sleep", "infinity"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": CLIENT, "namespace": NAMESPACE}, "spec": spec}


def model(name: str, image: str, layout: Layout, *, path: str = "tiny") -> dict[str, Any]:
    """A ShardedModel of the tiny model, with pinned degrees and what this engine needs beside."""
    return {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {"id": MODEL_ID, "config": CONFIG, "weights": {"pvc": {"claimName": "models", "path": path}}},
            "engine": {
                "image": image,
                "version": engine.VERSION,
                "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.items()],
            },
            "workload": {"inputTokens": 256, "outputTokens": 128, "concurrency": 4, "maxModelLen": 1024},
            "parallelism": {"tensor": layout.tensor, "pipeline": layout.pipeline},
            "pod": {"runtimeClassName": RUNTIME_CLASS, "resources": {"cpu": "200m", "memory": "10Gi"}},
        },
    }


class Served:
    """One ShardedModel on the cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def status(self) -> Mapping[str, Any]:
        """Its status as it is now."""
        status: Mapping[str, Any] = self.cluster.get("smodel", self.name, "-n", NAMESPACE)["status"]
        return status

    def ready(self) -> Mapping[str, Any]:
        """The condition Ready."""
        return next(entry for entry in self.status()["conditions"] if entry["type"] == "Ready")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it serves."""
        wait_for(self._serves, seconds, f"{self.name} to be Ready", 2)

    def _serves(self) -> bool:
        ready = self.ready()
        assert ready["status"] == "True", ready
        return True

    def pods(self) -> list[dict[str, Any]]:
        """Its pods, by name."""
        selector = f"shardwright.io/model={self.name}"
        items: list[dict[str, Any]] = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def log(self, pod: str, *words: str) -> str:
        """What the engine has written."""
        return self.cluster.kubectl("-n", NAMESPACE, "logs", pod, *words)

    def ask(self, prompt: list[int]) -> Mapping[str, Any]:
        """Complete a prompt through the client Service, from the client's pod; greedy."""
        body = {
            "model": MODEL_ID,
            "prompt": prompt,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "skip_special_tokens": False,
        }
        url = f"http://{self.name}.{NAMESPACE}.svc:8000/v1/completions"
        words = ["-n", NAMESPACE, "exec", CLIENT, "--", "python3", "-c", _ASK, url, json.dumps(body)]
        answer: Mapping[str, Any] = json.loads(self.cluster.kubectl(*words))
        return answer

    def kv_bytes_per_token(self) -> int:
        """What the plan says that one token takes of the K/V cache of the fullest rank."""
        memory = self.status()["plan"]["memory"]
        room: int = min(stage["kvCacheBytes"] for stage in memory["stages"])
        return round(room / int(memory["kvCacheTokens"]))

    def answers(self) -> list[list[str]]:
        """The words that follow each of PROMPTS."""
        return [self.ask(prompt)["choices"][0]["text"].split() for prompt in PROMPTS]

    def kv_tokens(self) -> set[int]:
        """How many tokens of K/V the engine says that it holds; one figure for the group, the smallest of its ranks."""
        logged = re.findall(r"KV cache size: ([\d,]+) tokens", self.log(f"{self.name}-0-0"))
        return {int(figure.replace(",", "")) for figure in logged}

    def delete(self) -> None:
        """Delete it and wait until its pods are gone."""
        self.cluster.kubectl("-n", NAMESPACE, "delete", "smodel", self.name, "--ignore-not-found", "--wait=true")
        wait_for(lambda: not self.pods(), 180, f"the pods of {self.name} to be gone", 1)


def prepare(cluster: Cluster) -> str:
    """Make the namespace, the models' claim and the client; return the engine's image."""
    cluster.apply(*namespace_objects())
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", CLIENT, "--ignore-not-found")  # an older one, of another image
    cluster.apply(client_pod(release.image(cluster)))
    cluster.kubectl("-n", NAMESPACE, "wait", f"pod/{CLIENT}", "--for=condition=Ready", "--timeout=120s")
    return os.environ.get(IMAGE_VARIABLE) or images.engine_image(docker.Docker())


def serve(cluster: Cluster, name: str, image: str, layout: Layout, *, path: str = "tiny") -> Served:
    """Create a ShardedModel and return it when it is Ready by its rendered probes."""
    served = Served(cluster, name)
    cluster.apply(model(name, image, layout, path=path))
    with step(f"starting {name}: tensor {layout.tensor} x pipeline {layout.pipeline}", 120):
        served.wait_ready()
    return served


@contextmanager
def single_gpu_nodes(cluster: Cluster) -> Iterator[None]:
    """Let the workers have one GPU each, so that two pipeline stages need two nodes: a planned group takes whole nodes."""
    cluster_module.pretend_gpus(cluster, 1)
    try:
        yield
    finally:
        cluster_module.pretend_gpus(cluster, GPUS_PER_NODE)
