"""K/V in the memory of the nodes, as pods and engines are told of it."""

from typing import Any

import pytest

from shardwright.api.record import PlanRecord, decode, encode
from shardwright.planning.node_storage import HostCache
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import asked_hash, of_kind, plan_hash
from shardwright.rendering.render import render
from shardwright.units import GIB
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.rendered import engine_of, pod_of

KEPT = HostCache(pod_bytes=100 * GIB, engine_bytes=200 * GIB, region_bytes=200 * GIB, tokens=1)
"""Of an engine over two nodes."""


def keeping(**changes: Any) -> Plan:
    return a_plan(host_cache=KEPT, **changes)


def memory(plan: Plan, part: str, stated: str | None = None) -> str | None:
    resources = engine_of(render(plan, a_deployment(memory=stated)))["resources"]
    found: str | None = resources[part].get("memory")
    return found


def test_an_engine_is_told_what_all_of_its_ranks_keep() -> None:
    words = engine_of(render(keeping(), a_deployment()))["args"]
    at = words.index("--kv-offloading-size")

    assert words[at : at + 4] == [
        "--kv-offloading-size",
        "200",
        "--kv-offloading-backend",
        "native",
    ]
    assert not [
        word for word in engine_of(render(a_plan(), a_deployment()))["args"] if "offload" in word
    ]


def test_a_pod_requests_its_part_and_its_shared_memory_has_room_for_the_files_of_the_whole() -> (
    None
):
    volumes = {
        volume["name"]: volume for volume in pod_of(render(keeping(), a_deployment()))["volumes"]
    }

    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "205Gi"}  # 5 without
    assert (memory(a_plan(), "requests"), memory(keeping(), "requests")) == ("41Gi", "141Gi")
    assert (memory(a_plan(), "limits"), memory(keeping(), "limits")) == ("542Gi", "742Gi")


@pytest.mark.parametrize(
    ("stated", "requested", "limit"),
    [("64Gi", "164Gi", "264Gi"), ("1.5Gi", "103936Mi", "206336Mi"), ("0", "100Gi", None)],
)
def test_memory_that_a_user_states_is_beside_it(
    stated: str, requested: str, limit: str | None
) -> None:
    assert (memory(keeping(), "requests", stated), memory(keeping(), "limits", stated)) == (
        requested,
        limit,
    )


def test_the_start_up_budget_includes_the_time_to_fill_host_memory() -> None:
    bases = [
        of_kind(render(plan, a_deployment()).objects, "StatefulSet")[0]["metadata"]["annotations"][
            "shardwright.io/start-up-budget"
        ]
        for plan in (a_plan(), keeping())
    ]

    assert [int(basis.split(" s:")[0]) for basis in bases] == [2100, 2100 + 54]
    assert "54 s to fill 100.0 GiB of host memory" in bases[1]


def test_pods_are_asked_for_it_and_what_was_stored_without_is_as_it_was() -> None:
    assert asked_hash("spec", keeping(), ()) != asked_hash("spec", a_plan(), ())
    assert plan_hash(keeping()) != plan_hash(a_plan())
    record = PlanRecord(input_hash="a", cut_hash="b", generation=1, plan=keeping())
    assert decode(encode(record)) == record
