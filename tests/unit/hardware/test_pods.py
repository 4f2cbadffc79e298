"""Which GPUs a pod holds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts, is_held
from shardwright.hardware.nodes import GpuUsage, read_node, read_pod
from tests.support.builders_nodes import a_node, a_pod_holding, an_mi300x_node


def facts_of(node: dict[str, Any]) -> NodeFacts:
    facts = read_node(node)
    assert isinstance(facts, NodeFacts)
    return facts


def a_container(gpus: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}, **more}


def held(pod: object) -> int:
    return sum(usage.gpus for usage in read_pod(pod))


def a_pod_with(containers: list[Any], inits: Sequence[Any] = (), **spec: Any) -> dict[str, Any]:
    return {
        "spec": {"nodeName": "n", "containers": containers, "initContainers": list(inits), **spec},
        "status": {"phase": "Running"},
    }


def test_a_foreign_pod_holds_what_it_requests() -> None:
    usage = GpuUsage(node="n", resource="nvidia.com/gpu", gpus=4)
    assert read_pod(a_pod_holding("n", 4)) == (usage,)


def test_a_pod_of_a_model_names_its_owner_and_group() -> None:
    pod = a_pod_holding(
        "n", 8, model="llama", namespace="prod", group="llama-0", resource="amd.com/gpu"
    )
    usage = GpuUsage(
        node="n", resource="amd.com/gpu", gpus=8, owner=("prod", "llama"), group="llama-0"
    )
    assert read_pod(pod) == (usage,)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert read_pod(a_pod_holding("n", 4, phase=phase)) == ()


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_a_bound_pod_holds_its_gpus_whatever_it_does(phase: str) -> None:
    assert held(a_pod_holding("n", 4, phase=phase)) == 4


def test_a_terminating_pod_still_holds_its_gpus() -> None:
    pod = a_pod_holding("n", 4)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert held(pod) == 4


def test_a_pod_that_is_not_placed_holds_nothing() -> None:
    assert read_pod(a_pod_holding(None, 4, phase="Pending")) == ()


def test_a_pod_that_preempts_holds_the_node_it_is_nominated_to() -> None:
    pod = a_pod_holding(None, 4, phase="Pending")
    pod["status"]["nominatedNodeName"] = "n"
    usage = GpuUsage(node="n", resource="nvidia.com/gpu", gpus=4)
    assert read_pod(pod) == (usage,)


def test_a_pod_without_gpus_holds_nothing() -> None:
    assert read_pod(a_pod_with([{"resources": {"requests": {"cpu": "1"}}}])) == ()
    assert read_pod(a_pod_holding("n", 0)) == ()


def test_what_a_node_does_not_offer_no_pod_holds_there() -> None:
    """Whoever names the node himself may request anything: the kubelet passes over it."""
    both = {"resources": {"limits": {"nvidia.com/gpu": "1", "amd.com/gpu": "8"}}}
    nvidia, amd = read_pod(a_pod_with([both]))
    published = replace(facts_of(a_node("n")), published=True)
    claimed = replace(nvidia, resource="")
    for node, held in (
        (facts_of(a_node("n")), (True, False, True)),
        (facts_of(an_mi300x_node("n")), (False, True, True)),
        (published, (False, False, True)),
        (None, (True, True, True)),
    ):
        assert tuple(is_held(item, node) for item in (nvidia, amd, claimed)) == held


def test_containers_add_up() -> None:
    assert held(a_pod_with([a_container(1), a_container(2)])) == 3


def test_a_limit_stands_in_for_a_missing_request() -> None:
    assert held(a_pod_with([{"resources": {"limits": {"nvidia.com/gpu": "2"}}}])) == 2


def test_init_containers_run_one_after_the_other() -> None:
    assert held(a_pod_with([a_container(1)], [a_container(4), a_container(2)])) == 4


def test_init_containers_smaller_than_the_pod_add_nothing() -> None:
    assert held(a_pod_with([a_container(8)], [a_container(4)])) == 8


def test_sidecars_run_beside_everything_after_them() -> None:
    sidecar = a_container(1, restartPolicy="Always")
    assert held(a_pod_with([a_container(2)], [sidecar])) == 3
    assert held(a_pod_with([a_container(2)], [sidecar, a_container(4)])) == 5
    assert held(a_pod_with([a_container(2)], [a_container(4), sidecar])) == 4


def test_overhead_is_added() -> None:
    assert held(a_pod_with([a_container(2)], overhead={"nvidia.com/gpu": "1"})) == 3


@pytest.mark.parametrize("amount", ["-4", "many", None, [], "0"])
def test_a_request_that_is_no_number_of_gpus_holds_nothing(amount: object) -> None:
    assert held(a_pod_with([{"resources": {"requests": {"nvidia.com/gpu": amount}}}])) == 0
