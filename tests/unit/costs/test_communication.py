"""Communication: nothing in a group of one, start-up plus bytes over bandwidth, the slow link
shows.
"""

from dataclasses import replace

import pytest

from shardwright.costs.communication import Fabric, all_reduce_seconds, send_seconds, tensor_fabric
from shardwright.hardware.gpus import load_gpus
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from tests.support.builders_plan import a_network, a_pool, an_nvl72_pool

H100 = load_gpus()["H100-SXM-80GB"]
MEGABYTE = 10**6


def _fabric(pool: Pool, layout: Layout) -> Fabric:
    return tensor_fabric(Candidate(layout=layout, pool=pool, placement=place(pool, layout)))


def test_a_group_of_one_pays_nothing() -> None:
    assert all_reduce_seconds(64 * MEGABYTE, _fabric(a_pool(), Layout())) == 0
    assert send_seconds(64 * MEGABYTE, None, network=False) == 0


@pytest.mark.parametrize(
    ("pool", "layout", "fabric"),
    [
        pytest.param(
            a_pool(),
            Layout(tensor=8),
            Fabric(inner_ranks=8, inner=H100.scale_up, own_kernel=True),
            id="hgx",
        ),
        pytest.param(
            a_pool("L40S-48GB"),
            Layout(tensor=4),
            Fabric(inner_ranks=4, inner=load_gpus()["L40S-48GB"].host, shared_host=True),
            id="pcie",
        ),
        pytest.param(
            a_pool(nodes=2),
            Layout(tensor=16),
            Fabric(inner_ranks=8, inner=H100.scale_up, outer_ranks=2, outer=a_network()),
            id="two-nodes",
        ),
        pytest.param(
            an_nvl72_pool(),
            Layout(tensor=8),
            Fabric(inner_ranks=8, inner=load_gpus()["GB200-NVL-186GB"].scale_up),
            id="two-trays-of-a-rack-are-one-domain",
        ),
    ],
)
def test_the_fabric_is_what_the_placement_crosses(
    pool: Pool, layout: Layout, fabric: Fabric
) -> None:
    assert _fabric(pool, layout) == fabric


@pytest.mark.parametrize(
    ("ranks", "size_bytes", "measured_microseconds"),
    [(2, 67_108_864, 245), (4, 67_108_864, 318), (8, 67_108_864, 322), (8, 16_777_216, 115)],
)
def test_large_messages_over_nvlink_take_what_was_measured(
    ranks: int, size_bytes: int, measured_microseconds: float
) -> None:
    """H100 SXM, NCCL; source: microsoft/vidur@7d47513 data/profiling/network/h100_dgx."""
    predicted = all_reduce_seconds(size_bytes, _fabric(a_pool(), Layout(tensor=ranks)))

    assert predicted == pytest.approx(measured_microseconds * 1e-6, rel=0.35)


@pytest.mark.parametrize(
    ("gpu", "two_shot", "measured_microseconds"),
    [
        ("H100-SXM-80GB", True, 13.5),  # SGLang 0.5.14
        ("H100-SXM-80GB", False, 26.0),  # TensorRT-LLM 1.3
        ("B200-SXM-180GB", True, 15.0),
        ("B200-SXM-180GB", False, 17.8),
    ],
)
def test_a_mebibyte_over_eight_gpus_takes_what_engines_were_measured_at(
    gpu: str, *, two_shot: bool, measured_microseconds: float
) -> None:
    """In CUDA graphs; source: ai-dynamo/aiconfigurator@095f58a51, custom all-reduce tables."""
    fabric = replace(_fabric(a_pool(gpu), Layout(tensor=8)), two_shot=two_shot)

    predicted = all_reduce_seconds(2**20, fabric)

    assert predicted == pytest.approx(measured_microseconds * 1e-6, rel=0.25)


def test_four_ranks_on_one_pcie_root_are_slower_than_two() -> None:
    two, four = (
        all_reduce_seconds(8 * MEGABYTE, _fabric(a_pool("L40S-48GB"), Layout(tensor=n)))
        for n in (2, 4)
    )

    assert four > 1.5 * two  # half as many bytes again, and what they slow each other


def test_across_nodes_the_network_and_its_latency_are_added() -> None:
    inside = all_reduce_seconds(MEGABYTE, _fabric(a_pool(), Layout(tensor=8)))
    across = all_reduce_seconds(MEGABYTE, _fabric(a_pool(nodes=2), Layout(tensor=16)))

    assert across - inside > 2 * a_network().latency_seconds


def test_an_infinitely_fast_network_without_latency_costs_only_its_start_up() -> None:
    free = replace(a_network(), bytes_per_second=float("inf"), latency_seconds=0.0)
    costs = [
        all_reduce_seconds(size, _fabric(a_pool(nodes=2, network=free), Layout(tensor=16)))
        for size in (0, 10**9)
    ]
    inside = [
        all_reduce_seconds(size, Fabric(inner_ranks=8, inner=H100.scale_up)) for size in (0, 10**9)
    ]

    assert costs[1] - costs[0] == pytest.approx(inside[1] - inside[0])


def test_a_hand_over_is_start_up_plus_bytes_over_bandwidth() -> None:
    link = a_network(gbps=400)

    small, large = (send_seconds(size, link, network=True) for size in (0, 30_000_000))

    assert large - small == pytest.approx(30_000_000 / (50e9 * 0.6))
