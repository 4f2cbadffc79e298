"""A plan in vLLM's words, checked against the options that vLLM's own parser lists."""

from itertools import product
from typing import Any

import pytest

from shardwright.api.schema import spec_schema
from shardwright.engines.launch import Serving
from shardwright.engines.vllm.arguments import serve_arguments
from shardwright.engines.vllm.policy import RULES
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from tests.support.builders_deployment import a_plan, a_plan_of, a_small_plan
from tests.support.command_lines import read_arguments
from tests.support.option_values import check_value

ADAPTER_RANKS = spec_schema()["properties"]["model"]["properties"]["maxAdapterRank"]["enum"]


def serving(**changes: Any) -> Serving:
    values = {"model": "org/model", "served_name": "org/model", "version": "0.33.0"}
    return Serving(**(values | {"load_seconds": 900, "drain_seconds": 10} | changes))


def test_a_group_of_two_nodes_is_said_in_native_multi_node_flags() -> None:
    assert serve_arguments(a_plan(), serving(revision="0" * 40)) == (
        "org/model", "--served-model-name", "org/model", "--revision", "0" * 40,
        "--allowed-media-domains", "none.invalid",
        "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2",
        "--distributed-executor-backend", "mp", "--nnodes", "2", "--master-port", "29501",
        "--device-ids", "0,1,2,3,4,5,6,7",
        "--max-model-len", "3072", "--max-num-seqs", "64", "--max-num-batched-tokens", "8192",
        "--gpu-memory-utilization", "0.92", "--kv-cache-dtype", "auto",
        "--distributed-timeout-seconds", "900", "--cpu-distributed-timeout-seconds", "900", "--shutdown-timeout", "10",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "load_format", "load", "nccl"),
    [
        (Layout(tensor=8, pipeline=2), None, 16_680, 900),
        (Layout(tensor=8, pipeline=2), None, 700, 700),
        (Layout(tensor=8, expert=16, attention_data=2), None, 16_680, 16_680),
        (Layout(tensor=8, pipeline=2), "fastsafetensors", 16_680, 16_680),
        (Layout(tensor=8, pipeline=2), "runai_streamer", 16_680, 16_680),
    ],
)
def test_ranks_wait_long_for_each_other_over_nccl_only_where_one_may_still_load(
    layout: Layout, load_format: str | None, load: int, nccl: int
) -> None:
    said = serving(load_seconds=load, load_format=load_format)
    _, options = read_arguments(serve_arguments(a_plan_of(layout, nodes=2), said))

    assert options["distributed-timeout-seconds"] == str(nccl)
    assert options["cpu-distributed-timeout-seconds"] == str(load)


def test_over_ray_a_group_is_not_told_of_nodes() -> None:
    _, native = read_arguments(serve_arguments(a_plan(), serving()))
    _, over_ray = read_arguments(serve_arguments(a_plan(), serving(over_ray=True)))

    assert over_ray["distributed-executor-backend"] == "ray"
    assert native.keys() - over_ray.keys() == {"nnodes", "master-port", "device-ids"}
    same = over_ray.keys() - {"distributed-executor-backend"}
    assert {name: over_ray[name] for name in same} == {name: native[name] for name in same}


@pytest.mark.parametrize("over_ray", [False, True])
def test_a_single_pod_has_no_multi_node_flags(over_ray: bool) -> None:  # noqa: FBT001  # a case
    _, options = read_arguments(serve_arguments(a_small_plan(), serving(over_ray=over_ray)))
    assert {
        "nnodes",
        "master-port",
        "distributed-executor-backend",
        "enable-expert-parallel",
    }.isdisjoint(options)


def test_experts_quantization_cache_and_user_arguments_are_said() -> None:
    plan = a_plan_of(Layout(tensor=8, expert=8))
    _, options = read_arguments(
        serve_arguments(
            plan,
            serving(quantization="fp8", kv_cache_dtype="fp8", arguments={"enforce-eager": True}),
        )
    )
    found = {
        name: options[name]
        for name in ("enable-expert-parallel", "quantization", "kv-cache-dtype", "enforce-eager")
    }
    assert found == {
        "enable-expert-parallel": True,
        "quantization": "fp8",
        "kv-cache-dtype": "fp8",
        "enforce-eager": True,
    }


def test_adapters_are_named_after_a_slot_for_each() -> None:
    adapters = (("support", "/adapters/0/support"), ("team/sql:v2", "/adapters/1"))
    words = serve_arguments(
        a_small_plan(), serving(adapters=adapters, adapter_rank=64, arguments={"seed": 3})
    )

    told = words[words.index("--enable-lora") :]
    assert told == (
        "--enable-lora", "--max-loras", "2", "--max-lora-rank", "64",
        "--lora-modules", "support=/adapters/0/support", "team/sql:v2=/adapters/1",
        "--seed=3",
    )  # fmt: skip
    _, options = read_arguments(serve_arguments(a_small_plan(), serving(adapters=adapters[:1])))
    assert [check_value(name, value, "0.33.0") for name, value in options.items()] == [None] * len(
        options
    )


@pytest.mark.parametrize("version", RULES.tables.versions)
@pytest.mark.parametrize("rank", ADAPTER_RANKS)
def test_every_rank_that_a_resource_may_say_is_one_of_the_parsers_choices(
    rank: int, version: str
) -> None:
    assert check_value("max-lora-rank", str(rank), version) is None


USERS: list[dict[str, object]] = [
    {},
    {"enable-prefix-caching": False, "seed": 3, "override-generation-config": {"top_k": 5}},
]


@pytest.mark.parametrize("version", RULES.tables.versions)
def test_every_name_type_and_value_that_is_rendered_is_one_that_the_parser_takes(
    version: str,
) -> None:
    seen = 0
    for tensor, pipeline, experts, users in product((1, 2, 8), (1, 2, 4), (False, True), USERS):
        layout = Layout(tensor=tensor, pipeline=pipeline, expert=tensor if experts else 1)
        plan = a_plan_of(layout, nodes=pipeline)
        said = serving(
            version=version,
            quantization="fp8",
            revision="abc",
            kv_cache_dtype="fp8",
            arguments=users,
        )
        _, options = read_arguments(serve_arguments(plan, said))
        refused = [check_value(name, value, version) for name, value in options.items()]
        assert [problem.sentence() for problem in refused if problem] == []
        seen += len(options)
    assert seen > 400


@pytest.mark.parametrize(
    ("plan", "arguments", "queued"),
    [
        (a_plan(replica_requests=96), {}, "192"),
        (a_plan(), {}, str(2 * a_plan().max_sequences)),
        (a_plan(replica_requests=96), {"max_num_queued_reqs": 7}, "7"),
    ],
    ids=["as the plan says", "of a plan without a speed", "as the user says"],
)
def test_what_is_too_much_is_refused_from_what_the_plan_says(
    plan: Plan, arguments: dict[str, object], queued: str
) -> None:
    said = serving(refuses=True, by_priority=True, arguments=arguments)
    _, options = read_arguments(serve_arguments(plan, said))

    assert options["max-num-queued-reqs"] == queued
    assert options["scheduling-policy"] == "priority"


def test_where_nothing_is_asked_for_what_is_too_much_waits_in_turn() -> None:
    _, options = read_arguments(serve_arguments(a_plan(replica_requests=96), serving()))

    assert options.keys().isdisjoint({"max-num-queued-reqs", "scheduling-policy"})
