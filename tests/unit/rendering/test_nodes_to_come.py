"""Pods that ask for nodes which do not exist yet, and the template that names them once they are
there.
"""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.provisioning import PoolTerm, Sought
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import CONTENT_HASH, TEMPLATE_HASH, content_hash, of_kind
from shardwright.rendering.deployment import Scheduling
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan

TERM = PoolTerm(labels=(("pool", "spot"),), apart_from=("host-a", "host-b"))
ASKS = Sought(group=0, terms=(TERM,))
COSCHEDULING = Scheduling(integration="Coscheduling", api_version="scheduling.x-k8s.io/v1alpha1")
ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def on(*nodes: str) -> Plan:
    return replace(a_plan(), groups=(nodes,))


def stateful_set(plan: Plan, *sought: Sought, **options: Any) -> dict[str, Any]:
    (found,) = of_kind(render(plan, a_deployment(sought=sought, **options)).objects, "StatefulSet")
    return dict(found)


def terms(item: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = item["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    return list(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"])


def named(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"matchFields": [field]}


def label_of(item: dict[str, Any]) -> str:
    return str(item["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH])


def test_pods_ask_for_any_node_of_the_pool_but_those_that_are_kept_and_one_a_node() -> None:
    asking = stateful_set(on("~spot-0", "~spot-1"), ASKS)
    pool = {"key": "pool", "operator": "In", "values": ["spot"]}
    apart = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["host-a", "host-b"]}

    assert terms(asking) == [{"matchExpressions": [ARCH, pool, apart]}]
    (anti,) = asking["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert anti["topologyKey"] == "kubernetes.io/hostname"


def test_nodes_that_exist_are_named_beside_those_that_come() -> None:
    asking = stateful_set(on("a", "~spot-0"), replace(ASKS, named=("a",)))

    assert terms(asking)[0] == named("a")
    assert "matchFields" not in terms(asking)[1]


@pytest.mark.parametrize("scheduling", [None, COSCHEDULING], ids=["none", "Coscheduling"])
def test_a_group_that_has_all_its_nodes_names_them_and_its_pods_are_of_the_same_template(
    scheduling: Scheduling | None,
) -> None:
    asking = stateful_set(on("~spot-0", "~spot-1"), ASKS, scheduling=scheduling)
    partly = stateful_set(on("x", "~spot-1"), ASKS, scheduling=scheduling)
    pinned = stateful_set(on("x", "y"), ASKS, scheduling=scheduling)

    assert terms(partly) == terms(asking)
    assert terms(pinned) == [named("x"), named("y")]
    assert {label_of(item) for item in (asking, partly, pinned)} == {label_of(asking)}
    without = [item["spec"]["template"]["spec"] | {"affinity": None} for item in (asking, pinned)]
    assert without[0] == without[1]
    assert pinned["metadata"]["annotations"][CONTENT_HASH] == content_hash(pinned)


def test_a_group_that_asks_again_or_is_planned_on_nodes_alone_is_of_another_template() -> None:
    plans = (on("~spot-0", "~spot-1"), on("x", "y"))
    labels = [
        label_of(stateful_set(plans[0], ASKS)),
        label_of(stateful_set(plans[0], replace(ASKS, number=2))),
        label_of(stateful_set(plans[1])),
    ]

    assert len(set(labels)) == len(labels)
