"""A taint reserves a node, or says a state that a component sets and takes away by itself."""

from collections.abc import Mapping
from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Stated
from shardwright.hardware.nodes import read_node
from shardwright.hardware.scheduling import NodeFilter, PodTerms
from shardwright.hardware.taints import TaintState, listed_taints
from tests.support.builders_nodes import a_node

KEPT_APART = {"NotReady": "NotReady", "Ends": "NodeLeaving"}
CODES = {"Passes": "NodeStarting", "Repair": "GpuUnhealthy", "Reserved": "TaintNotTolerated"}


def kept_out(
    key: str,
    effect: str = "NoSchedule",
    stated: Mapping[str, TaintState] | None = None,
    tolerations: tuple[Mapping[str, Any], ...] = (),
) -> str | None:
    """Return the code that keeps a model off a node with one taint, None if nothing does."""
    node = a_node("x", taints=[{"key": key, "effect": effect}])
    found = read_node(node, Stated(taint_states=stated or {}))
    assert isinstance(found, NodeFacts), found
    problem = NodeFilter(PodTerms(tolerations=tolerations)).keeps_out(found)
    return problem.code if problem else None


@pytest.mark.parametrize("row", listed_taints(), ids=lambda row: row["key"])
def test_each_listed_taint_is_a_state_with_a_source_and_an_owner(row: dict[str, str]) -> None:
    key = row["key"].replace("*", "some-component")
    # A cordon is said by spec.unschedulable, which the node lacks here.
    expected = {**CODES, **KEPT_APART, "Cordoned": None}[row["state"]]

    assert kept_out(key) == expected
    assert row["source"]
    assert row["owner"]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("example.com/storage-not-ready", "NodeStarting"),
        ("example.com/CSINotReady", "NodeStarting"),
        ("agent.example.com/uninitialized", "NodeStarting"),
        ("example.com/spot-termination", "NodeLeaving"),
        ("example.com/draining", "NodeLeaving"),
        ("example.com/team", "TaintNotTolerated"),
        ("not-ready.example.com/team", "TaintNotTolerated"),
    ],
)
def test_a_taint_that_nobody_has_listed_is_told_by_its_last_word(key: str, code: str) -> None:
    assert kept_out(key) == code


def test_settings_go_before_the_list_and_a_whole_key_before_a_beginning() -> None:
    stated = {
        "example.com/*": TaintState.PASSES,
        "example.com/drain": TaintState.RESERVED,
        "karpenter.sh/unregistered": TaintState.ENDS,
    }

    assert [kept_out(key, stated=stated) for key in ("example.com/a", *sorted(stated)[1:])] == [
        "NodeStarting",
        "TaintNotTolerated",
        "NodeLeaving",
    ]


@pytest.mark.parametrize(
    "key", ["DeletionCandidateOfClusterAutoscaler", "karpenter.sh/unregistered", "team"]
)
def test_a_soft_taint_keeps_nobody_off(key: str) -> None:
    assert kept_out(key, "PreferNoSchedule") is None


@pytest.mark.parametrize(
    ("key", "named", "everything"),
    [
        ("team", None, None),
        ("karpenter.sh/unregistered", None, "NodeStarting"),
        ("amd-gpu-unhealthy", "GpuUnhealthy", "GpuUnhealthy"),
        ("karpenter.sh/disrupted", "NodeLeaving", "NodeLeaving"),
    ],
)
def test_only_a_toleration_that_names_a_state_is_one_of_it(
    key: str, named: str | None, everything: str | None
) -> None:
    assert kept_out(key, tolerations=({"key": key, "operator": "Exists"},)) == named
    assert kept_out(key, tolerations=({"operator": "Exists"},)) == everything


def test_a_state_is_no_reason_to_ask_for_a_toleration() -> None:
    node = read_node(
        a_node("x", taints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}])
    )
    assert isinstance(node, NodeFacts)
    problem = NodeFilter(PodTerms()).keeps_out(node)

    assert problem is not None
    assert problem.sentence() == (
        "taint node.cilium.io/agent-not-ready:NoSchedule goes by itself: Cilium takes it away; "
        "wait; if it stays, look at what should take it away"
    )


def test_what_reserves_a_node_is_said_before_a_state_that_passes() -> None:
    taints = [
        {"key": "a.example.com/not-ready", "effect": "NoExecute"},
        {"key": "team", "effect": "NoSchedule"},
    ]
    node = read_node(a_node("x", taints=taints))
    assert isinstance(node, NodeFacts)
    problem = NodeFilter(PodTerms()).keeps_out(node)

    assert problem is not None
    assert problem.code == "TaintNotTolerated"
