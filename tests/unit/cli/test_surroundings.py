"""What a file of ``--nodes`` says of GPUs that a DRA driver serves: as the operator reads it."""

from __future__ import annotations

from typing import Any

from shardwright.cli.inputs import Given
from shardwright.cli.surroundings import read_surroundings
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.pods import GpuUsage
from tests.harness.gpu_devices import DRIVER, H100, a_device_class, a_slice
from tests.support.builders_nodes import a_node, bare_node
from tests.support.builders_store import a_pod

RESOURCE = "nvidia.com/gpu"


def given(*contents: dict[str, Any]) -> list[Given]:
    return [Given(file="nodes.yaml", content=content) for content in contents]


def a_claim(pod: str, gpus: int, *, extended: bool = False) -> dict[str, Any]:
    """A claim that holds GPUs of the node dra for a pod."""
    results = [
        {"driver": DRIVER, "pool": "dra", "device": f"gpu-{minor}"}
        for minor in range(gpus)
    ]
    made = {"resource.kubernetes.io/extended-resource-claim": "true"}
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{pod}-claim",
            "namespace": "models",
            "annotations": made if extended else {},
            "ownerReferences": [{"kind": "Pod", "name": pod, "uid": "uid"}],
        },
        "status": {"allocation": {"devices": {"results": results}}},
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


def test_a_claim_on_another_node_than_its_pod_is_held_beside_what_that_requests() -> (
    None
):
    pod = {"kind": "Pod", **a_pod("asks", node="other", gpus=2)}
    objects = given(bare_node("dra"), pod, a_claim("asks", 2, extended=True))
    assert read_surroundings(objects).usage == (
        GpuUsage(node="other", resource=RESOURCE, gpus=2),
        GpuUsage(node="dra", resource=RESOURCE, gpus=2),
    )


def test_what_pods_claim_is_held_once_and_by_the_model_of_the_pod() -> None:
    pods = (
        {
            "kind": "Pod",
            **a_pod("llama-0-0", model="llama", set_name="llama-0", node="dra"),
        },
        {"kind": "Pod", **a_pod("asks", node="dra", gpus=2)},
    )
    claims = (
        a_claim("llama-0-0", 3),
        a_claim("asks", 2, extended=True),
        a_claim("of-nobody", 1),
    )
    objects = given(bare_node("dra"), *pods, *claims)
    assert read_surroundings(objects).usage == (
        GpuUsage(node="dra", resource=RESOURCE, gpus=2),
        GpuUsage(
            node="dra",
            resource=RESOURCE,
            gpus=3,
            owner=("models", "llama"),
            group="llama-0",
        ),
        GpuUsage(node="dra", resource=RESOURCE, gpus=1),
    )
