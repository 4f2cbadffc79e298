"""The command line against a live cluster says what it says of the same cluster in a file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest

from shardwright.cli.main import main
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.builders_cli import Files, a_foreign_pod, a_manifest
from tests.support.models import Models

pytestmark = pytest.mark.controlplane
Capture = pytest.CaptureFixture[str]
EMPTY = b"apiVersion: v1\nkind: Config\n"

SELECTOR: dict[str, Any] = {
    "placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def _a_foreign_pod(namespace: str, node: str, gpus: int) -> dict[str, Any]:
    pod = a_foreign_pod(node, gpus)
    container = {**pod["spec"]["containers"][0], "image": "example.org/trainer:1"}
    tolerations = [{"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": namespace},
        "spec": {"nodeName": node, "tolerations": tolerations, "containers": [container]},
    }


def _config_map(namespace: str, config: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "ours", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"config.json": json.dumps(config)},
    }


def test_a_live_cluster_and_its_file_get_the_same_plan(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    first, _ = fleet("SYNTH-h100-8x-eks-p5", 2, "cli")
    control_plane.kubectl(
        "create", "-f", "-", input=json.dumps(_a_foreign_pod(namespace, first, 4))
    )
    model = files.manifests(a_manifest("m", parallelism={"tensor": 8}, **SELECTOR))
    nodes = files.raw(
        "nodes.yaml", control_plane.kubectl("get", "nodes,pods", "-A", "-o", "yaml").encode()
    )

    assert (
        main(
            [
                "plan",
                "-f",
                model,
                "-n",
                namespace,
                "--kubeconfig",
                str(control_plane.kubeconfig),
                "-o",
                "json",
            ]
        )
        == 0
    )
    live = capsys.readouterr().out
    assert main(["plan", "-f", model, "-n", namespace, "--nodes", nodes, "-o", "json"]) == 0

    assert capsys.readouterr().out == live
    assert json.loads(live)["items"][0]["plan"]["placement"]["nodes"] == fleet.names[1:]


def test_a_config_map_is_read_from_the_cluster(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("SYNTH-h100-8x-eks-p5", 1, "cli")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }
    control_plane.kubectl("create", "-f", "-", input=json.dumps(_config_map(namespace, config)))
    manifest = a_manifest("m", "us/ours", **SELECTOR)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["model"]["configMapRef"] = {"name": "ours"}

    words = [
        "plan",
        "-f",
        files.manifests(manifest),
        "--kubeconfig",
        str(control_plane.kubeconfig),
        "-o",
        "json",
    ]
    assert main(words) == 0

    assert json.loads(capsys.readouterr().out)["items"][0]["model"]["parameters"] == 8_030_261_248


def test_an_api_server_takes_what_render_prints(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("SYNTH-h100-8x-eks-p5", 2, "cli")
    manifest = a_manifest("llama", "meta-llama/Llama-3.1-405B-Instruct", **SELECTOR)
    manifest["metadata"]["namespace"] = namespace

    assert (
        main(
            [
                "render",
                "-f",
                files.manifests(manifest),
                "--kubeconfig",
                str(control_plane.kubeconfig),
            ]
        )
        == 0
    )

    text = capsys.readouterr().out
    created = control_plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text
    )
    assert len(created.splitlines()) == len(text.split("\n---\n"))


def test_without_the_right_to_see_pods_free_capacity_is_not_known(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("SYNTH-h100-8x-eks-p5", 1, "cli")
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    control_plane.kubectl("create", "clusterrole", namespace, "--verb=list", "--resource=nodes")
    control_plane.kubectl(
        "create",
        "clusterrolebinding",
        namespace,
        f"--clusterrole={namespace}",
        f"--serviceaccount={namespace}:reader",
    )
    kubeconfig = control_plane.kubeconfig_for(namespace, "reader")

    assert (
        main(
            ["plan", "-f", files.manifests(a_manifest(**SELECTOR)), "--kubeconfig", str(kubeconfig)]
        )
        == 0
    )

    assert "no pods are known: every allocatable GPU counts as free" in capsys.readouterr().out


def test_without_the_right_to_see_nodes_the_refusal_is_said(
    control_plane: ControlPlane, namespace: str, files: Files, capsys: Capture
) -> None:
    control_plane.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    kubeconfig = control_plane.kubeconfig_for(namespace, "nobody")

    assert main(["plan", "-f", files.manifests(a_manifest()), "--kubeconfig", str(kubeconfig)]) == 3

    err = capsys.readouterr().err
    assert err.startswith("error[NotAllowedInCluster]: nodes is forbidden: ")
    assert err.endswith(
        "let the operator plan: 'plan --server -f FILE' needs no right to see nodes\n"
    )


def test_every_way_not_to_get_in_is_one_line_with_its_way_out(
    control_plane: ControlPlane, files: Files, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token, the certificate, a cluster without ShardedModels; the kubeconfig is the second of
    a list.
    """
    monkeypatch.setenv(
        "KUBECONFIG",
        os.pathsep.join((files.raw("empty.yaml", EMPTY), str(control_plane.kubeconfig))),
    )
    said = {}
    for name, words in {
        "token": ["--token", "of-yesterday"],
        "certificate": ["--certificate-authority", certifi.where()],
        "user": ["--as", "nobody"],
        "server": ["--server", "https://127.0.0.1:9"],
    }.items():
        assert main(["plan", "meta-llama/Llama-3.1-8B-Instruct", *words]) == 3
        said[name] = capsys.readouterr().err

    assert {name: text[: text.index("]") + 1] for name, text in said.items()} == {
        "token": "error[CredentialsRefused]",
        "certificate": "error[CertificateRefused]",
        "user": "error[NotAllowedInCluster]",
        "server": "error[NoAnswer]",
    }
    assert [text.count("\n") for text in said.values()] == [1, 1, 1, 1]
    assert 'User "nobody" cannot list resource "nodes"' in said["user"]


def test_nothing_is_left_of_a_plan_that_was_interrupted(
    chart: ControlPlane, namespace: str, files: Files
) -> None:
    """No operator runs yet: it would wait for its answer for two minutes. Whoever started the tests
    may ignore interrupts.
    """
    words = [
        "plan",
        "--server",
        "-f",
        files.manifests(a_manifest()),
        "-n",
        namespace,
        "--kubeconfig",
        str(chart.kubeconfig),
    ]
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "shardwright.cli.main", *words],
        stderr=subprocess.PIPE,
        text=True,
    )

    def copies() -> list[str]:
        return chart.kubectl("get", "smodel", "-n", namespace, "-o", "name").split()

    wait_for(copies, 30, "the copy that is to be planned")
    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130
    assert process.communicate()[1] == ""
    assert copies() == []


def test_the_operator_plans_for_who_may_not_list_nodes(
    models: Models, control_plane: ControlPlane, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    namespace = models.namespace
    control_plane.kubectl("create", "serviceaccount", "developer", "-n", namespace)
    account = f"--serviceaccount={namespace}:developer"
    control_plane.kubectl(
        "create", "rolebinding", "developer", "--clusterrole=edit", account, "-n", namespace
    )
    kubeconfig = str(control_plane.kubeconfig_for(namespace, "developer"))
    model = files.manifests(a_manifest("small"))

    assert main(["plan", "--server", "-f", model, "-n", namespace, "--kubeconfig", kubeconfig]) == 0
    said = capsys.readouterr().out
    assert said.startswith("small: TP1 on 1 NVIDIA-H100-80GB-HBM3 of 1 node\n")
    assert "you may not list them: GPUs of others" in said
    assert "gated: accept its terms on the hub" in " ".join(said.split())
    too_large = files.manifests(a_manifest("large", parallelism={"tensor": 8, "pipeline": 4}))
    assert (
        main(
            [
                "plan",
                "--server",
                "-f",
                too_large,
                "-n",
                namespace,
                "--kubeconfig",
                kubeconfig,
                "-o",
                "json",
            ]
        )
        == 1
    )
    (report,) = json.loads(capsys.readouterr().out)["items"]
    assert report["metadata"] == {"name": "large", "namespace": namespace}
    assert report["problem"]["code"] in {"NothingFits", "InsufficientCapacity"}
    assert models.all("ShardedModel") == []


def test_a_model_that_serves_is_asked_by_its_name(
    serving: Models, control_plane: ControlPlane, files: Files, capsys: Capture
) -> None:
    there = ["--kubeconfig", str(control_plane.kubeconfig), "-n", serving.namespace]
    stored = serving.get("ShardedModel", "large")

    assert main(["status", "large", *there, "-o", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["ready"], item["condition"], item["reason"], item["commands"]) == (
        *("1/1", "True", "Serving"),
        [],
    )
    assert [(group["name"], group["ready"]) for group in item["groups"]] == [("large-0", True)]
    assert main(["status", *there]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "NAME",
        "READY",
        "REASON",
        "LAYOUT",
        "GPUS",
        "SINCE",
    ]

    assert main(["plan", "large", *there, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["plan"] == stored["status"]["plan"]

    assert main(["diff", "large", *there]) == 0, capsys.readouterr()
    capsys.readouterr()
    edited = {
        **stored,
        "spec": {**stored["spec"], "engine": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}},
    }
    assert main(["diff", "-f", files.manifests(edited), *there, "-o", "json"]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["items"]
    assert difference["groups"] == [
        {
            "name": "large-0",
            "fate": "Restarts",
            "fields": [
                "spec.containers[engine].env[NCCL_DEBUG]",
                "spec.initContainers[weights].env[NCCL_DEBUG]",
            ],
            "removed": [],
            "lastOutageSeconds": None,
        }
    ]
    assert difference["startSeconds"] == stored["status"]["engine"]["startBudget"]["loadSeconds"]

    assert main(["status", "lrge", *there]) == 2
    assert capsys.readouterr().err == (
        "error[NoShardedModel]: NAME: there is no ShardedModel lrge in namespace "
        f"{serving.namespace}"
        "; did you mean large?\n"
    )
