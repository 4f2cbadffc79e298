"""`make demo`: a real control plane, a fleet of fake GPU nodes, the chart, the samples, and what
became of them.

Each sample says in a comment which layout is expected and why, and in an `# expect:` line what the
demo checks:

    # expect: tensor=8 pipeline=2 nodes=2 outcome=Ready
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Self

import yaml
from rich.console import Console

from tests.harness.api import ApiError, Manifest
from tests.harness.build import cache_folder
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED, DeployedOperator
from tests.harness.errors import HarnessError
from tests.harness.stages import BEHAVIOUR, DEAD, KUBELET
from tests.harness.waiting import wait_for
from tests.harness.wheel import ROOT

SAMPLES = ROOT / "manifests" / "samples"
FLEET = ROOT / "examples" / "fleet" / "nodes.yaml"
NAMESPACE = "demo"
SYSTEM = "shardwright-system"
RELEASE = "shardwright"
_MODELS = f"/apis/shardwright.io/v1alpha1/namespaces/{NAMESPACE}/shardedmodels"
_AS_STATED_SECONDS = 120.0
_EXPECT = re.compile(r"^# expect: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """One manifest and what it says will come of it: degrees and nodes by name, and the outcome
    (Ready or a reason).
    """

    file: Path
    manifest: Manifest
    expected: dict[str, str]

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def samples() -> list[Sample]:
    """Return the samples in the order of their file names."""
    return [_sample(file) for file in sorted(SAMPLES.glob("*.yaml"))]


def _sample(file: Path) -> Sample:
    text = file.read_text()
    stated = _EXPECT.search(text)
    if stated is None:
        raise HarnessError(
            f"{file.name} states no expectation; add a line like `# expect: tensor=1 nodes=1 "
            "outcome=Ready`"
        )
    return Sample(
        file, yaml.safe_load(text), dict(part.split("=", 1) for part in stated[1].split())
    )


def fleet() -> tuple[list[Manifest], list[Manifest]]:
    """Return the nodes and the foreign pods of the example fleet, as `kubectl get nodes,pods -A -o
    yaml` printed them.
    """
    items = yaml.safe_load(FLEET.read_text())["items"]
    return [i for i in items if i["kind"] == "Node"], [i for i in items if i["kind"] == "Pod"]


class Demo:
    """One running demo; a context manager."""

    def __init__(self, console: Console) -> None:
        self._say = console.print
        self.control_plane = ControlPlane.start()
        self.operator: DeployedOperator | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.operator.stop()
        self.control_plane.stop()

    def set_up(self) -> None:
        """Create the fleet, install the chart, start what the chart's Deployment says."""
        cp = self.control_plane
        self._say(f"Control plane ready after {cp.start_seconds:.1f} s.")
        cp.create_namespace(NAMESPACE)
        cp.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")
        create_fleet(cp, *fleet())
        self._say(f"{len(cp.nodes.names())} nodes made from real label dumps.")
        cp.helm(
            "install",
            RELEASE,
            str(ROOT / "charts" / "shardwright"),
            "--namespace",
            SYSTEM,
            "--create-namespace",
            *NAMED,
        )
        self.operator = DeployedOperator(cp, SYSTEM, RELEASE)
        self.operator.start()
        self._say(
            f"Chart installed; {len(self.operator.replicas)} operator processes run what its "
            "Deployment says."
        )
        self._say(f"(Its pods in {SYSTEM} stay Pending: nothing starts containers here.)")

    def serve(self, stated: list[Sample]) -> list[str]:
        """Apply the samples, show how they come up; return what is not as stated."""
        for sample in stated:
            self.control_plane.kubectl("apply", "-n", NAMESPACE, "-f", str(sample.file))
        missing = self._wait(stated)
        self._say(self.control_plane.kubectl("get", "smodel", "-n", NAMESPACE), highlight=False)
        latencies = sorted(created_after_seconds(self.control_plane).values())
        if latencies:
            middle = latencies[len(latencies) // 2]
            self._say(
                f"From ShardedModel to its first StatefulSet: median {middle:.2f} s, slowest "
                f"{latencies[-1]:.2f} s."
            )
        return missing

    def _wait(self, stated: list[Sample]) -> list[str]:
        deadline = time.monotonic() + _AS_STATED_SECONDS
        shown: set[str] = set()
        while True:
            if self.operator is not None:
                self.operator.check()
            live = {
                item["metadata"]["name"]: item
                for item in self.control_plane.api.get(_MODELS)["items"]
            }
            differences = {sample.name: difference(sample, live[sample.name]) for sample in stated}
            for name in sorted({name for name, text in differences.items() if not text} - shown):
                shown.add(name)
                self._say(f"  {name}: as stated ({len(shown)} of {len(stated)})")
            if len(shown) == len(stated) or time.monotonic() > deadline:
                return [f"{name}: {text}" for name, text in differences.items() if text]
            threading.Event().wait(0.2)

    def say_how_to_look_further(self) -> None:
        """Print the commands that a curious person types next."""
        cp = self.control_plane
        assert self.operator is not None
        port = self.operator.replicas[0].metrics_port
        self._say(how_to_look_further(cp.kubeconfig, cp.bin, port), highlight=False, soft_wrap=True)


def how_to_look_further(kubeconfig: Path, binaries: Path, metrics_port: int) -> str:
    """Return the commands that a curious person types next; the plugin of kubectl stands beside
    this Python.
    """
    programs = f"{binaries}:{Path(sys.executable).parent}"
    return f"""
Look further, in another terminal:
  export KUBECONFIG={kubeconfig}
  export PATH={programs}:$PATH
  kubectl get smodel,statefulsets,pods -o wide
  kubectl shardwright status                    # how the models stand, and what to type next
  kubectl describe smodel llama-405b            # the plan, its reasons, what was ruled out
  kubectl get smodel llama-405b -o yaml
  kubectl explain shardedmodel.spec.workload
  curl -s http://127.0.0.1:{metrics_port}/metrics | grep ^shardwright_plan
"""


def create_fleet(cp: ControlPlane, nodes: list[Manifest], pods: list[Manifest]) -> None:
    """Create the nodes, those that are not ready as such, and the pods of others on their nodes."""
    dead = [node["metadata"]["name"] for node in nodes if not _is_ready(node)]
    for node in nodes:
        if not _is_ready(node):
            node["metadata"].setdefault("annotations", {})[KUBELET] = DEAD
        node["metadata"] = {
            key: node["metadata"][key]
            for key in ("name", "labels", "annotations")
            if key in node["metadata"]
        }
    cp.nodes.create(nodes, timeout=120)
    for namespace in sorted({pod["metadata"]["namespace"] for pod in pods}):
        try:
            cp.create_namespace(namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
    for pod in pods:
        _create_pod(cp, pod)
    wait_for(
        lambda: all(not cp.nodes.is_ready(name) for name in dead),
        30,
        "the dead nodes to be NotReady",
    )


def _create_pod(cp: ControlPlane, pod: Manifest) -> None:
    """Create the pod and wait until it is in the phase that was printed."""
    metadata = {
        key: pod["metadata"][key]
        for key in ("name", "namespace", "labels")
        if key in pod["metadata"]
    }
    name, namespace, phase = (metadata["name"], metadata["namespace"], pod["status"]["phase"])
    if phase == "Succeeded":
        metadata["annotations"] = {BEHAVIOUR: "complete"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**pod["spec"], "restartPolicy": "Never"},
    }
    cp.api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    wait_for(
        lambda: cp.pods.get(namespace, name)["status"]["phase"] == phase,
        30,
        f"pod {name} to be {phase}",
    )


def _is_ready(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return all(
        condition["status"] == "True" for condition in conditions if condition["type"] == "Ready"
    )


def difference(sample: Sample, live: Manifest) -> str:
    """Return how the live resource differs from what the sample states; empty when it does not."""
    status = live.get("status", {})
    plan = status.get("plan", {})
    seen = {
        **{key: str(value) for key, value in plan.get("layout", {}).items()},
        "nodes": str(plan.get("nodes", 0)),
    }
    seen["outcome"] = _outcome(status)
    wrong = {
        key: seen.get(key)
        for key, value in sample.expected.items()
        if key in ("outcome", *seen) and seen.get(key) != value
    }
    unknown = [key for key in sample.expected if key not in seen and key != "outcome"]
    return ", ".join(
        [
            *(f"{key} is {value}, stated {sample.expected[key]}" for key, value in wrong.items()),
            *unknown,
        ]
    )


def _outcome(status: dict[str, Any]) -> str:
    """Return `Ready` when the model serves, else the reason of the Ready condition."""
    for condition in status.get("conditions", []):
        if condition["type"] == "Ready":
            return "Ready" if condition["reason"] == "Serving" else str(condition["reason"])
    return "Unknown"


def created_after_seconds(cp: ControlPlane) -> dict[str, float]:
    """Return, for each ShardedModel, how long after its creation its first StatefulSet was created:
    from the audit log.
    """
    models: dict[str, float] = {}
    sets: dict[str, float] = {}
    for event in cp.audit_events():
        reference = event.get("objectRef", {})
        created = (
            event["verb"] in ("create", "patch")
            and event.get("responseStatus", {}).get("code") == 201
        )
        if not created or reference.get("namespace") != NAMESPACE or reference.get("subresource"):
            continue
        when = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        if reference.get("resource") == "shardedmodels":
            models.setdefault(reference["name"], when)
        elif reference.get("resource") == "statefulsets":
            sets.setdefault(reference["name"], when)
    owners = {
        item["metadata"]["name"]: item["metadata"]["ownerReferences"][0]["name"]
        for item in cp.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets")["items"]
    }
    pairs: dict[str, float] = {}
    for name, when in sets.items():
        owner = owners.get(name, "")
        if owner in models:
            pairs[owner] = min(pairs.get(owner, when), when)
    return {owner: when - models[owner] for owner, when in pairs.items()}


# -- the command
#
#
#
#
# ----------------------------------------------------------------------------------------------------------


def _running_file() -> Path:
    return cache_folder().parent / "demo.json"


def _running_pid() -> int | None:
    """Return the process of the demo that another terminal runs."""
    try:
        pid = int(json.loads(_running_file().read_text())["pid"])
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return pid


def _stop_running() -> int:
    """End the demo that another terminal runs; wait until it is gone."""
    file, pid = _running_file(), _running_pid()
    if pid is None:
        file.unlink(missing_ok=True)
        sys.stdout.write("No demo is running.\n")
        return 0
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not file.exists(), 30, "the demo to end")
    sys.stdout.write("The demo is stopped.\n")
    return 0


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(console: Console, *, once: bool) -> int:
    file = _running_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    running = _running_pid()
    if running and not once:
        console.print(f"A demo runs already, process {running}; end it with: make demo-down")
        return 1
    with Demo(console) as demo:
        if not once:
            file.write_text(json.dumps({"pid": os.getpid()}))
        try:
            demo.set_up()
            missing = demo.serve(samples())
            console.print(f"{time.monotonic() - began:.0f} s in all.")
            for line in missing:
                console.print(f"[red]not as stated[/red]  {line}", highlight=False, soft_wrap=True)
            if missing and demo.operator is not None:
                console.print(demo.operator.logs()[-4000:], highlight=False, markup=False)
            if once:
                return 1 if missing else 0
            demo.say_how_to_look_further()
            console.print("It stays up until Ctrl-C, or `make demo-down` in another terminal.")
            for _ in _until_interrupted():
                pass
            return 1 if missing else 0
        finally:
            if not once:
                file.unlink(missing_ok=True)


def _until_interrupted() -> Iterator[None]:
    while True:
        signal.pause()
        yield


def main() -> int:
    """Run the command; the exit code says whether everything was as stated."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--once", action="store_true", help="check that every sample is as it states, then exit"
    )
    parser.add_argument("--down", action="store_true", help="stop a demo that was left running")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminated)
    if arguments.down:
        return _stop_running()
    try:
        return _run(Console(soft_wrap=True), once=arguments.once)
    except KeyboardInterrupt:
        return 0 if not arguments.once else 130
    except HarnessError as error:
        sys.stderr.write(f"{error}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main())
