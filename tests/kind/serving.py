"""ShardedModels that a real engine serves on the kind cluster, seen from a client in it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.harness.waiting import wait_for
from tests.kind import cluster as cluster_module
from tests.kind import release
from tests.kind.cluster import GPUS_PER_NODE, MODELS_FOLDER, Cluster
from tests.kind.shell import step

NAMESPACE = "models"
CLIENT = release.CLIENT
MOST_WORKERS = 4
"""Workers of the engine at once, 2 GiB each: the quota of the namespace lets no pod in that would
be more.
"""

READY_SECONDS = 900  # 80 s on quiet cores; the compiler of the first start takes most of it

PROMPTS = ([10, 20, 30], [100, 101, 102, 103], [7], [400, 3, 250, 99, 12], [55, 5, 205])
TOKENS = 16

ONE_AT_A_TIME, LONG = "workload: {concurrency: 1}", "maxModelLen: 50000"
PIPELINE = f"{ONE_AT_A_TIME}\n  engine: {{{LONG}}}"
"""Makes the planner cut the model in two where a node has one GPU."""

KV_BLOCK_TOKENS = 128
"""Tokens of a block of this build of the engine (vLLM 0.32 `platforms/cpu.py`)."""

_ASK = """
import json, sys, urllib.request
url, body = sys.argv[1], sys.argv[2]
request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=120).read().decode())
"""


def manifest(
    name: str,
    line: str,
    *,
    path: str = "tiny",
    further: tuple[str, ...] = (),
    model: str = release.MODEL_ID,
    weights: str | None = None,
) -> str:
    """What a user types: few lines, of which the last says what is wanted; `further` ones only to
    break or change it. One group: the K/V of these engines is far too small for a planned load.
    """
    said = " ".join((line, *further))
    one = () if "replicas:" in said else ("  replicas: 1",)
    source = weights or f"uri: pvc://models/{path}"
    return "\n".join(
        (
            "apiVersion: shardwright.io/v1alpha1",
            "kind: ShardedModel",
            f"metadata: {{name: {name}, namespace: {NAMESPACE}}}",
            "spec:",
            f"  model: {{id: {model}, weights: {{{source}}}}}",
            f"  {line}",
            *(f"  {more}" for more in further),
            *one,
        )
    )


def namespace_objects() -> list[dict[str, Any]]:
    """A namespace that takes only restricted pods and so many GPUs, and the models as a claim that
    many may read.
    """
    spec: dict[str, Any] = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    workers = {"hard": {"requests.nvidia.com/gpu": str(MOST_WORKERS)}}
    volume = {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": MODELS_FOLDER}}
    claim = {**spec, "volumeName": "models", "resources": {"requests": {"storage": "1Gi"}}}
    named = {"name": "models", "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels},
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {**named, "name": "workers"},
            "spec": workers,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": volume,
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named, "spec": claim},
    ]


def plain_pod(name: str, image: str, gpus: int = 0) -> dict[str, Any]:
    """A pod that does nothing: the client, from which requests are sent as an application would."""
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "command": ["sleep", "infinity"],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 0,
    }
    named = {"name": name, "namespace": NAMESPACE, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


def prepare(cluster: Cluster) -> None:
    """Make the namespace, the models' claim and the client; what a run that was killed has left
    there goes.
    """
    cluster.apply(*namespace_objects())
    cluster.kubectl("-n", NAMESPACE, "delete", "shardedmodels", "--all", "--wait=true")
    cluster.kubectl(
        "-n", NAMESPACE, "delete", "pod", CLIENT, "--ignore-not-found"
    )  # an older one, of another image
    cluster.apply(plain_pod(CLIENT, release.image(cluster)))
    cluster.kubectl(
        "-n", NAMESPACE, "wait", f"pod/{CLIENT}", "--for=condition=Ready", "--timeout=120s"
    )


def clean(cluster: Cluster) -> None:
    """Delete what `prepare` made, and all that is in it."""
    cluster.kubectl(
        "delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true", "--timeout=180s"
    )
    cluster.kubectl("delete", "persistentvolume", "models", "--ignore-not-found", "--wait=false")


@dataclass(frozen=True)
class Facts:
    """What a group was found to be: who runs where, what it answers, and what each rank says that
    it holds.
    """

    layout: Mapping[str, Any]
    stages: list[Mapping[str, Any]]
    kv_tokens_planned: int
    max_model_len: int
    nodes: list[str]
    restarts: int
    answers: list[list[str]]
    kv_tokens_logged: set[int]
    weights: Mapping[int, int]  # bytes, by rank
    blocks: Mapping[int, int]  # of K/V, by rank


class Served:
    """One ShardedModel on the cluster."""

    def __init__(self, cluster: Cluster, name: str, model: str = release.MODEL_ID) -> None:
        self.cluster, self.name, self.model = cluster, name, model

    def write(
        self,
        line: str,
        *,
        path: str = "tiny",
        further: tuple[str, ...] = (),
        weights: str | None = None,
    ) -> None:
        """Create it, or change it to this, as `kubectl apply` does."""
        text = manifest(
            self.name, line, path=path, further=further, model=self.model, weights=weights
        )
        self.cluster.kubectl("apply", "-f", "-", text=text)

    def status(self) -> Mapping[str, Any]:
        """Its status as it is now; nothing while it has none."""
        status: Mapping[str, Any] = self.cluster.get("smodel", self.name, "-n", NAMESPACE).get(
            "status", {}
        )
        return status

    def condition(self, kind: str = "Ready") -> Mapping[str, Any]:
        """A condition."""
        return next(
            (entry for entry in self.status().get("conditions", []) if entry["type"] == kind), {}
        )

    def failure(self) -> Mapping[str, Any]:
        """The failure that status remembers; nothing where there is none."""
        groups = self.status().get("groups", [])
        failure: Mapping[str, Any] = groups[0].get("lastFailure", {}) if groups else {}
        return failure

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it serves."""
        wait_for(self._serves, seconds, f"{self.name} to be Ready", 1)

    def _serves(self) -> bool:
        ready = self.condition()
        assert ready.get("status") == "True", ready
        return True

    def pods(self) -> list[dict[str, Any]]:
        """Its pods, by name."""
        selector = f"shardwright.io/model={self.name}"
        items: list[dict[str, Any]] = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)[
            "items"
        ]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def uids(self) -> set[str]:
        """Which pods there are."""
        return {str(pod["metadata"]["uid"]) for pod in self.pods()}

    def log(self, rank: int = 0, *words: str) -> str:
        """What the pod with this index has written."""
        return self.cluster.kubectl("-n", NAMESPACE, "logs", f"{self.name}-0-{rank}", *words)

    def inside(self, rank: int, command: str) -> str:
        """Run a command in the pod with this index."""
        return self.cluster.kubectl(
            "-n", NAMESPACE, "exec", f"{self.name}-0-{rank}", "--", "bash", "-c", command
        )

    @property
    def url(self) -> str:
        """Where its client Service takes completions."""
        return f"http://{self.name}.{NAMESPACE}.svc:8000/v1/completions"

    def question(self, prompt: list[int], tokens: int = TOKENS) -> str:
        """The body of a request: greedy, exactly so many tokens."""
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        return json.dumps(body | {"skip_special_tokens": False})

    def ask(self, prompt: list[int], tokens: int = TOKENS) -> list[str]:
        """Complete a prompt through the client Service, from the client's pod. The words of the
        answer.
        """
        words = [
            "-n",
            NAMESPACE,
            "exec",
            CLIENT,
            "--",
            "python3",
            "-c",
            _ASK,
            self.url,
            self.question(prompt, tokens),
        ]
        answer = json.loads(self.cluster.kubectl(*words))
        said: str = answer["choices"][0]["text"]
        return said.split()

    def facts(self) -> Facts:
        """Ask it all prompts and read what it has logged."""
        plan, pods = self.status()["plan"], self.pods()
        logs = "\n".join(self.log(index) for index in range(len(pods)))
        reported = re.findall(r"rank (\d+) (?:holds|keeps) (\d+) (bytes|blocks)", logs)
        return Facts(
            layout=plan["layout"],
            stages=plan["memory"]["stages"],
            kv_tokens_planned=plan["memory"]["kvCacheTokens"],
            max_model_len=plan["limits"]["maxModelLen"],
            nodes=[pod["spec"]["nodeName"] for pod in pods],
            restarts=sum(
                status["restartCount"]
                for pod in pods
                for status in pod["status"]["containerStatuses"]
            ),
            answers=[self.ask(prompt) for prompt in PROMPTS],
            kv_tokens_logged={
                int(figure.replace(",", ""))
                for figure in re.findall(r"KV cache size: ([\d,]+) tokens", logs)
            },
            weights={int(rank): int(count) for rank, count, what in reported if what == "bytes"},
            blocks={int(rank): int(count) for rank, count, what in reported if what == "blocks"},
        )

    def restart(self) -> None:
        """Ask for a planned restart."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.cluster.kubectl(
            "-n",
            NAMESPACE,
            "annotate",
            "smodel",
            self.name,
            f"shardwright.io/restart={stamp}",
            "--overwrite",
        )

    def delete(self) -> None:
        """Delete it and wait until its pods are gone."""
        self.cluster.kubectl(
            "-n", NAMESPACE, "delete", "smodel", self.name, "--ignore-not-found", "--wait=true"
        )
        wait_for(lambda: not self.pods(), 180, f"the pods of {self.name} to be gone", 1)


def serve(cluster: Cluster, name: str, line: str, *, further: tuple[str, ...] = ()) -> Served:
    """Create a ShardedModel and return it when it is Ready by its rendered probes."""
    served = Served(cluster, name)
    served.write(line, further=further)
    with step(f"starting {name}: {line}", 80):
        served.wait_ready()
    return served


@contextmanager
def single_gpu_nodes(cluster: Cluster) -> Iterator[None]:
    """Let the workers have one GPU each: then two ranks need two nodes."""
    cluster_module.pretend_gpus(cluster, 1)
    try:
        yield
    finally:
        cluster_module.pretend_gpus(cluster, GPUS_PER_NODE)
