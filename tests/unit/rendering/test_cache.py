"""Downloads that are kept: the claim, the container that fills it, and what the engine is then
told.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardwright.engines.registry import VLLM
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import CacheClaim, ClaimPath, Deployment, SecretKey
from shardwright.rendering.pod import start_budget
from shardwright.rendering.render import render
from shardwright.rendering.scripts import ScriptSettings, scripts
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.rendered import engine_of, environment_of, pod_of

TOKEN = SecretKey(name="hub", key="token")
SHARED = a_deployment(
    cache=CacheClaim(claim="downloads"),
    hub_token=TOKEN,
    revision="a" * 40,
    environment=(("HF_HUB_X", "$(Y)"),),
)
OWN = a_deployment(cache=CacheClaim(storage="900Gi", storage_class="fast"))

HUB = """
import os
from pathlib import Path

class HfApi:
    def list_repo_files(self, model, revision=None):
        return os.environ["FILES"].split()

def snapshot_download(model, revision=None, ignore_patterns=None, local_dir=None):
    with Path(os.environ["CALLS"]).open("a") as calls:
        calls.write(f"{model} {revision} {local_dir} {ignore_patterns}\\n")
    hold = Path(os.environ["CALLS"] + ".hold")  # a pipe: reading it waits for who writes
    if hold.exists():
        hold.read_text()
    if os.environ.get("FAIL"):
        raise OSError("the hub hung up")
"""


def test_a_shared_claim_is_mounted_and_filled_before_the_engine_starts() -> None:
    pod = pod_of(render(a_plan(), SHARED))

    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "downloads"}} in pod["volumes"]
    (container,) = pod["initContainers"]
    assert container["command"] == ["python3", "/etc/shardwright/weights.py"]
    assert container["args"] == [SHARED.model, "a" * 40, ""]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/etc/shardwright",
        "/cache",
        "/tmp",
    }


def test_only_the_container_that_downloads_has_the_token_and_the_engine_runs_offline() -> None:
    bundle = render(a_plan(), SHARED)
    (container,) = pod_of(bundle)["initContainers"]
    downloading = {
        item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]
    }

    assert downloading["HF_TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert (downloading["HF_HOME"], downloading["HF_HUB_X"]) == ("/cache/huggingface", "$$(Y)")
    assert "HF_TOKEN" not in environment_of(bundle)
    assert environment_of(bundle)["HF_HUB_OFFLINE"] == "1"
    assert environment_of(bundle)["HF_HOME"] == "/cache/huggingface"


@pytest.mark.parametrize("deployment", [SHARED, OWN, a_deployment()])
def test_an_engine_reads_what_was_downloaded_and_writes_its_own_part_alone(
    deployment: Deployment,
) -> None:
    bundle = render(a_plan(), deployment)
    environment = environment_of(bundle)
    mounts = [item for item in engine_of(bundle)["volumeMounts"] if item["name"] == "cache"]

    assert mounts == [
        {
            "name": "cache",
            "mountPath": "/cache/huggingface",
            "subPath": "huggingface",
            "readOnly": True,
        },
        {"name": "cache", "mountPath": "/cache/own", "subPathExpr": "pods/$(POD_NAME)"},
    ]
    assert environment["VLLM_CACHE_ROOT"] == "/cache/own/vllm"
    assert environment["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    (container,) = pod_of(bundle)["initContainers"]
    # Its home is the pod's part of the cache, which weights.py finds by the pod's name.
    assert {"name": "HF_HOME", "value": "/cache/huggingface"} in container["env"]


def test_without_downloads_the_hubs_folder_is_the_engines_own() -> None:
    bundle = render(a_plan(), a_deployment(claim=ClaimPath(claim="weights", path="llama")))

    assert environment_of(bundle)["HF_HOME"] == "/cache/own/huggingface"
    mounts = [item for item in engine_of(bundle)["volumeMounts"] if item["name"] == "cache"]
    assert [item["mountPath"] for item in mounts] == ["/cache/own"]


def test_a_claim_for_every_pod_outlives_zero_replicas_and_not_the_model() -> None:
    (item,) = of_kind(render(a_plan(), OWN).objects, "StatefulSet")

    (template,) = item["spec"]["volumeClaimTemplates"]
    assert template == {
        "metadata": {"name": "cache"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "900Gi"}},
            "storageClassName": "fast",
        },
    }
    assert item["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Retain",
    }
    assert "cache" not in {volume["name"] for volume in item["spec"]["template"]["spec"]["volumes"]}


def test_without_a_cache_nothing_is_kept_and_each_start_downloads() -> None:
    bundle = render(a_plan(), a_deployment(hub_token=TOKEN))

    (container,) = pod_of(bundle)["initContainers"]
    assert container["args"][0] == a_deployment().model
    assert "HF_TOKEN" not in environment_of(bundle)
    assert {"name": "cache", "emptyDir": {}} in pod_of(bundle)["volumes"]
    assert "volumeClaimTemplates" not in of_kind(bundle.objects, "StatefulSet")[0]["spec"]


@pytest.mark.parametrize("deployment", [SHARED, OWN, a_deployment()])
def test_the_engines_own_budget_does_not_count_the_download(deployment: Any) -> None:
    # 405 GB at 500 MB/s, twice
    assert start_budget(a_plan(), deployment).load_seconds == 2100


class Pods:
    """Init containers on one cache, with a hub that writes down who asks it for what."""

    def __init__(self, folder: Path, files: str) -> None:
        self.calls = folder / "calls"
        (folder / "huggingface_hub.py").write_text(HUB)
        (folder / "weights.py").write_text(
            scripts(ScriptSettings(engine=VLLM, ranks=1, downloads=True))["weights.py"]
        )
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder),
            "HF_HOME": str(folder / "cache"),
            "CALLS": str(self.calls),
            "FILES": files,
        }

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(self._folder / "weights.py"), *arguments]
        return subprocess.Popen(
            command,
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        said = process.communicate(timeout=60)[0]
        return process.returncode, said

    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


def test_one_pod_downloads_and_the_others_wait_for_it(tmp_path: Path) -> None:
    pods = Pods(tmp_path, "model.safetensors pytorch_model.bin config.json")
    hold = Path(f"{pods.calls}.hold")
    os.mkfifo(hold)
    first = pods.start("org/model", "abc", "")
    wait_for(lambda: bool(pods.asked()), what="the first download")
    second = pods.start("org/model", "abc", "")
    assert second.stdout
    assert "waiting for the lock" in second.stdout.readline()
    hold.write_text("")

    assert [process.wait(timeout=60) for process in (first, second)] == [0, 0]
    assert (tmp_path / "pods" / socket.gethostname() / "home").is_dir()
    assert second.communicate()[0] == "shardwright: org/model is in the cache\n"
    first.communicate()
    (call,) = pods.asked()
    assert call.startswith("org/model abc None ['*.bin',")


def test_a_restart_asks_the_hub_for_nothing(tmp_path: Path) -> None:
    pods = Pods(tmp_path, "model.safetensors")
    assert pods.run("org/model", "", "")[0] == 0

    assert pods.run("org/model", "", "", FAIL="1") == (
        0,
        "shardwright: org/model is in the cache\n",
    )
    assert len(pods.asked()) == 1
    assert pods.run("org/model", "def", "")[0] == 0
    assert len(pods.asked()) == 2


def test_a_download_that_fails_is_tried_again_by_the_next_start(tmp_path: Path) -> None:
    pods = Pods(tmp_path, "model.bin consolidated.safetensors config.json")

    code, said = pods.run("org/model", "", "", FAIL="1")

    assert (code, "the hub hung up" in said) == (1, True)
    assert pods.run("org/model", "", "")[0] == 0
    assert (
        pods.asked() == ["org/model None None None"] * 2
    )  # without safetensors the other formats are the weights


def test_adapters_are_fetched_once_each_into_folders_of_their_own(tmp_path: Path) -> None:
    pods = Pods(tmp_path, "adapter_model.safetensors")
    adapters = (
        "org/a",
        "abc",
        "/cache/adapters/org/a/abc",
        "org/a",
        "def",
        "/cache/adapters/org/a/def",
    )

    assert [pods.run("org/model", "abc", "", *adapters)[0] for _ in range(2)] == [0, 0]
    assert [call.split(" [")[0] for call in pods.asked()] == [
        "org/model abc None",
        "org/a abc /cache/adapters/org/a/abc",
        "org/a def /cache/adapters/org/a/def",
    ]


def test_rendered_objects_of_a_cache_are_plain_data() -> None:
    assert json.loads(json.dumps([dict(item) for item in render(a_plan(), OWN).objects]))
