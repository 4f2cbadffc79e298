"""The command line against a live cluster says what it says of the same cluster in a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli.main import main
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.support.builders_cli import Files, a_manifest, a_pod

pytestmark = pytest.mark.controlplane
Capture = pytest.CaptureFixture[str]

SELECTOR: dict[str, Any] = {"placement": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def _a_foreign_pod(namespace: str, node: str, gpus: int) -> dict[str, Any]:
    pod = a_pod(node, gpus)
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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.json": json.dumps(config)}}


def test_a_live_cluster_and_its_file_get_the_same_plan(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    first, _ = fleet("SYNTH-h100-8x-eks-p5", 2, "cli")
    control_plane.kubectl("create", "-f", "-", input=json.dumps(_a_foreign_pod(namespace, first, 4)))
    model = files.manifests(a_manifest("m", parallelism={"tensor": 8}, **SELECTOR))
    nodes = files.raw("nodes.yaml", control_plane.kubectl("get", "nodes,pods", "-A", "-o", "yaml").encode())

    assert main(["plan", "-f", model, "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]) == 0
    live = capsys.readouterr().out
    assert main(["plan", "-f", model, "--nodes", nodes, "-o", "json"]) == 0

    assert capsys.readouterr().out == live
    assert json.loads(live)["plan"]["placement"]["nodes"] == fleet.names[1:]


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

    words = ["plan", "-f", files.manifests(manifest), "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]
    assert main(words) == 0

    assert json.loads(capsys.readouterr().out)["model"]["parameters"] == 8_030_261_248


def test_an_api_server_takes_what_render_prints(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("SYNTH-h100-8x-eks-p5", 2, "cli")
    manifest = a_manifest("llama", "meta-llama/Llama-3.1-405B-Instruct", **SELECTOR)
    manifest["metadata"]["namespace"] = namespace

    assert main(["render", "-f", files.manifests(manifest), "--kubeconfig", str(control_plane.kubeconfig)]) == 0

    text = capsys.readouterr().out
    created = control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    assert len(created.splitlines()) == len(text.split("\n---\n"))


def test_without_the_right_to_see_pods_free_capacity_is_not_known(
    control_plane: ControlPlane, namespace: str, fleet: Fleet, files: Files, capsys: Capture
) -> None:
    fleet("SYNTH-h100-8x-eks-p5", 1, "cli")
    control_plane.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    control_plane.kubectl("create", "clusterrole", namespace, "--verb=list", "--resource=nodes")
    control_plane.kubectl(
        "create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", f"--serviceaccount={namespace}:reader"
    )
    kubeconfig = control_plane.kubeconfig_for(namespace, "reader")

    assert main(["plan", "-f", files.manifests(a_manifest(**SELECTOR)), "--kubeconfig", str(kubeconfig)]) == 0

    assert "no pods are known: every allocatable GPU counts as free" in capsys.readouterr().out


def test_without_the_right_to_see_nodes_the_refusal_is_said(
    control_plane: ControlPlane, namespace: str, files: Files, capsys: Capture
) -> None:
    control_plane.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    kubeconfig = control_plane.kubeconfig_for(namespace, "nobody")

    assert main(["plan", "-f", files.manifests(a_manifest()), "--kubeconfig", str(kubeconfig)]) == 3

    err = capsys.readouterr().err
    assert err.startswith("error: the cluster cannot be read: nodes is forbidden: ")
