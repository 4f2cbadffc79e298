"""What an administrator states of nodes goes before what they say of themselves."""

from typing import Any

import pytest

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import NODE_SET, NONE, Stated
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.topology import Domain, DomainKind
from tests.support.builders_nodes import RACK_UUID, a_gb200_rack, a_node

PREFIX = "shardwright.node-restriction.kubernetes.io/"
VOUCHED = Stated(label_prefix=PREFIX)
PRICED = Stated(prices={"H100-SXM-80GB": 2.5})
CLIQUE = f"{RACK_UUID}.32766"


def facts(node: dict[str, Any], stated: Stated) -> NodeFacts:
    found = read_node(node, stated)
    assert isinstance(found, NodeFacts), found
    return found


@pytest.mark.parametrize(
    ("stated", "labels", "annotations", "price"),
    [
        (NONE, {"shardwright.io/gpu-hour-price": "0.0001"}, {}, 0.0001),
        (PRICED, {"shardwright.io/gpu-hour-price": "0.0001"}, {}, 2.5),
        (PRICED, {}, {"shardwright.io/gpu-hour-price": "0.0001"}, 2.5),
        (VOUCHED, {"shardwright.io/gpu-hour-price": "0.0001"}, {}, None),
        (VOUCHED, {}, {"shardwright.io/gpu-hour-price": "0.0001"}, None),
        (VOUCHED, {}, {f"{PREFIX}gpu-hour-price": "0.0001"}, None),
        (VOUCHED, {f"{PREFIX}gpu-hour-price": "1.25"}, {}, 1.25),
        (
            Stated(prices=PRICED.prices, label_prefix=PREFIX),
            {f"{PREFIX}gpu-hour-price": "1.25"},
            {},
            1.25,
        ),
        (
            Stated(prices=PRICED.prices, label_prefix=PREFIX),
            {"shardwright.io/gpu-hour-price": "1.25"},
            {},
            2.5,
        ),
    ],
)
def test_a_price_is_the_administrators_or_that_of_a_label_which_is_believed(
    stated: Stated, labels: dict[str, str], annotations: dict[str, str], price: float | None
) -> None:
    assert (
        facts(a_node("x", labels=labels, annotations=annotations), stated).gpu_hour_price == price
    )


def test_a_price_of_another_gpu_is_none_of_this_one() -> None:
    assert facts(a_node("x", product="NVIDIA-A100-SXM4-80GB"), PRICED).gpu_hour_price is None


def a_tray(**labels: str) -> dict[str, Any]:
    (tray,) = a_gb200_rack(trays=1)
    return {
        **tray,
        "metadata": {**tray["metadata"], "labels": {**tray["metadata"]["labels"], **labels}},
    }


def test_a_clique_is_believed_as_it_stands_where_nobody_says_who_writes_labels() -> None:
    assert facts(a_tray(), NONE).domain == Domain(kind=DomainKind.CLIQUE, name=CLIQUE, gpus=4)


@pytest.mark.parametrize(
    "own",
    [{}, {"shardwright.io/nvlink-domain": "rack-1"}, {"topology.k8s.aws/ultraserver-id": "us-1"}],
)
def test_no_label_a_kubelet_can_write_joins_nodes_where_vouched_ones_are_demanded(
    own: dict[str, str],
) -> None:
    warning = f"no {PREFIX}nvlink-domain label: the NVLink domain is taken to be the tray"
    assert facts(a_tray(**own), VOUCHED).domain == Domain(
        kind=DomainKind.NODE, name="gb200-00", gpus=4, warning=warning
    )


def test_a_domain_that_is_vouched_for_counts_where_the_clique_is_there_too() -> None:
    found = facts(a_tray(**{f"{PREFIX}nvlink-domain": "rack-1"}), VOUCHED)
    assert found.domain == Domain(kind=DomainKind.CLIQUE, name="rack-1", gpus=4)


def test_a_node_has_the_time_of_its_creation() -> None:
    node = a_node("x")
    node["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    assert str(facts(node, NONE).created) == "2026-01-02 03:04:05+00:00"
    assert facts(a_node("x"), NONE).created is None


@pytest.mark.parametrize("said", ["", "team", "research"])
def test_a_node_is_planned_on_by_the_installation_of_its_set_and_by_no_other(said: str) -> None:
    """An annotation does not move it: a node could have one value of each."""
    node = a_node("x", labels={NODE_SET: said} if said else {}, annotations={NODE_SET: "team"})
    found = {name: read_node(node, Stated(node_set=name)) for name in ("", "team", "research")}

    assert [name for name, facts in found.items() if isinstance(facts, NodeFacts)] == [said]


@pytest.mark.parametrize(
    ("labels", "node_set", "sentence"),
    [
        ({NODE_SET: "team"}, "", "label shardwright.io/node-set ('team') must not be set"),
        ({}, "team", "label shardwright.io/node-set (not set) must be 'team'"),
    ],
)
def test_of_a_node_of_another_set_it_is_said_which_that_is(
    labels: dict[str, str], node_set: str, sentence: str
) -> None:
    found = read_node(a_node("x", labels=labels), Stated(node_set=node_set))

    assert isinstance(found, NodeExclusion)
    assert (found.problem.code, found.ready) == ("OtherNodeSet", True)
    assert found.problem.sentence().startswith(sentence)
