"""What every rank holds, and the links among ranks."""

from dataclasses import replace

from shardwright.costs.estimates import TimeShare
from shardwright.layouts.layout import Layout
from shardwright.reporting.drawings import DrawnLink, DrawnRank, draw_links, draw_ranks
from tests.support.builders_plan import a_model, a_pool
from tests.support.builders_reporting import (
    a_reported_performance,
    a_reported_plan,
    a_reported_stage,
)


def test_a_rank_holds_its_share_of_heads_and_the_layers_of_its_stage() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=8, pipeline=2),
        stages=(a_reported_stage(0, 0, 39), a_reported_stage(1, 40, 79)),
    )

    ranks = draw_ranks(plan, a_model("llama-70b"))

    assert len(ranks) == 16
    assert ranks[9] == DrawnRank(
        rank=9,
        node=1,
        stage=1,
        tensor=1,
        attention_data=0,
        layers=(40, 79),
        heads=(8, 15),
        kv_heads=(1, 1),
        experts=None,
    )


def test_fewer_kv_heads_than_ranks_are_held_several_times() -> None:
    plan = a_reported_plan(layout=Layout(tensor=16), stages=(a_reported_stage(0, 0, 79),))

    held = [rank.kv_heads for rank in draw_ranks(plan, a_model("llama-70b"))]

    assert held == [(head, head) for head in range(8) for _ in range(2)]


def test_whole_experts_are_dealt_over_all_ranks_of_a_stage_and_sliced_ones_say_how_thin() -> None:
    stages = (a_reported_stage(0, 0, 47),)
    whole = a_reported_plan(layout=Layout(tensor=2, attention_data=2, expert=4), stages=stages)
    sliced = a_reported_plan(layout=Layout(tensor=4), stages=stages)
    model = a_model("qwen3-30b-a3b")

    assert [rank.experts for rank in draw_ranks(whole, model)] == [
        (0, 31),
        (32, 63),
        (64, 95),
        (96, 127),
    ]
    assert [rank.attention_data for rank in draw_ranks(whole, model)] == [0, 0, 1, 1]
    assert {(rank.experts, rank.expert_slices) for rank in draw_ranks(sliced, model)} == {(None, 4)}


def test_a_link_is_busy_for_its_share_of_the_time_of_a_token() -> None:
    shares = (
        TimeShare(name="Weights", seconds=0.006),
        TimeShare(name="TensorCommunication", seconds=0.003),
        TimeShare(name="PipelineCommunication", seconds=0.001),
    )
    speed = replace(a_reported_performance(), tpot_seconds=0.01, decode_shares=shares)
    plan = a_reported_plan(
        performance=speed, tensor_link="NVLink4 NVSwitch", pipeline_link="400 Gb/s RDMA"
    )

    assert draw_links(plan, a_pool()) == (
        DrawnLink(
            kind="tensor",
            name="NVLink4 NVSwitch",
            bytes_per_second=450e9,
            between_nodes=False,
            seconds=0.003,
            busy=0.3,
        ),
        DrawnLink(
            kind="pipeline",
            name="400 Gb/s RDMA",
            bytes_per_second=50e9,
            between_nodes=True,
            seconds=0.001,
            busy=0.1,
        ),
    )
    assert [link.bytes_per_second for link in draw_links(plan, None)] == [None, None]
