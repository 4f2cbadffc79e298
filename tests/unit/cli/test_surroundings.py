"""What a file of ``--nodes`` says of GPUs that a DRA driver serves: as the operator reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli.inputs import Given
from shardwright.cli.main import main
from shardwright.cli.surroundings import read_surroundings
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.pools import build_inventory
from tests.harness.gpu_devices import DRIVER, H100, a_device_class, a_slice
from tests.support.builders_nodes import a_node, bare_node
from tests.support.builders_store import a_pod

RESOURCE = "nvidia.com/gpu"


def given(*contents: dict[str, Any]) -> list[Given]:
    return [Given(file="nodes.yaml", content=content) for content in contents]


def a_claim(pod: str, gpus: int) -> dict[str, Any]:
    """A claim that holds GPUs of the node dra for a pod."""
    results = [{"driver": DRIVER, "pool": "dra", "device": f"gpu-{minor}"} for minor in range(gpus)]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": f"{pod}-claim", "namespace": "models"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": "uid"}],
        },
    }


def test_nodes_of_slices_stand_beside_those_of_labels() -> None:
    published = (a_device_class(RESOURCE), a_slice("dra"))
    objects = given(*published, bare_node("dra"), bare_node("cpu"), a_node("plugin"))
    found = [
        (node.name, node.product, node.gpus)
        for node in read_surroundings(objects).nodes
        if isinstance(node, NodeFacts)
    ]
    assert found == [("dra", H100, 8), ("plugin", "NVIDIA-H100-80GB-HBM3", 8)]


def test_what_pods_claim_is_held_once_and_by_the_model_of_the_pod() -> None:
    """A request holds nothing on a node of slices: the scheduler makes a claim for it."""
    of_model = a_pod("llama-0-0", model="llama", set_name="llama-0", node="dra")
    pods = ({"kind": "Pod", **of_model}, {"kind": "Pod", **a_pod("a", node="dra", gpus=2)})
    claims = (a_claim("llama-0-0", 3), a_claim("a", 2), a_claim("of-nobody", 1))
    published = (a_device_class(RESOURCE), a_slice("dra"))
    found = read_surroundings(given(*published, bare_node("dra"), *pods, *claims))
    assert [(usage.gpus, usage.owner, usage.group) for usage in found.usage or ()] == [
        (2, None, ""),
        (3, ("models", "llama"), "llama-0"),
        (2, None, ""),
        (1, None, ""),
    ]
    for own, free in ((None, 2), (("models", "llama"), 5)):
        (pool,) = build_inventory(found.nodes, found.usage, own=own).pools
        assert [node.free for node in pool.nodes] == [free]


def test_a_file_without_gpus_says_that_it_may_lack_resource_slices_and_how_they_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(bare_node("dra")))
    whole = tmp_path / "whole.json"
    items = [bare_node("dra"), a_device_class(RESOURCE), a_slice("dra")]
    whole.write_text(json.dumps({"kind": "List", "items": items}))

    assert main(["plan", "Qwen/Qwen3-8B", "--nodes", str(bare)]) == 1
    assert capsys.readouterr().err == (
        f"note: no node of {bare} has allocatable GPUs, and no ResourceSlices are in it, which have the "
        "GPUs that a DRA driver serves: if one does, write it with kubectl get nodes,pods,"
        "resourceslices,deviceclasses,resourceclaims -A -o json\n"
    )
    assert main(["plan", "Qwen/Qwen3-8B", "--nodes", str(whole)]) == 0
    assert "ResourceSlices" not in capsys.readouterr().err


def test_a_claim_in_the_file_of_the_model_or_of_the_nodes_bounds_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "hub", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    model = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "m"},
        "spec": {"model": {"id": "Qwen/Qwen3-8B", "weights": {"cache": {"claimName": "hub"}}}},
    }
    nodes = [a_node("x")]
    said = []
    for with_model, with_nodes in (([claim], nodes), ([], [*nodes, claim]), ([], nodes)):
        files = []
        for name, items in (("m.yaml", [model, *with_model]), ("n.json", with_nodes)):
            files.append(tmp_path / name)
            files[-1].write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        main(["plan", "-f", str(files[0]), "--nodes", str(files[1]), "-o", "json"])
        (report,) = json.loads(capsys.readouterr().out)["items"]
        said.append(report.get("problem", {}).get("code"))

    assert said == ["ClaimTooSmall", "ClaimTooSmall", None]
