"""The spec as a question to the planner."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.planner_request import to_request
from shardwright.api.resource import parse_manifest
from shardwright.costs.host import Storage
from shardwright.costs.workload import Workload
from shardwright.errors import InputError
from shardwright.layouts.layout import SearchSpace
from shardwright.planning.request import Objective, OptimizeFor, Request, Statistic
from tests.support.builders_plan import a_model
from tests.support.builders_resource import a_sharded_model

MODEL = a_model("qwen2.5-7b")
"""Its context is 32,768 tokens."""


def request_of(**spec: Any) -> Request:
    return to_request(parse_manifest(a_sharded_model(**spec)).spec, MODEL)


def test_the_smallest_manifest_asks_for_the_documented_load() -> None:
    assert request_of() == Request(
        workload=Workload(
            input_tokens=2048,
            output_tokens=512,
            concurrency=64,
            max_model_len=2560,
            open_model_len=32768,
        ),
        objective=Objective(),
        space=SearchSpace(replicas=None),
        storage=Storage.HUB,
        deploy=True,
    )


def test_every_field_reaches_the_planner() -> None:
    request = request_of(
        workload={"inputTokens": 1000, "outputTokens": 100, "concurrency": 8},
        engine={"maxModelLen": 5000, "kvCacheQuantization": "FP8"},
        objective={"optimizeFor": "Throughput", "ttftMilliseconds": 1500, "tpotMilliseconds": 25},
        replicas=2,
        mode="PlanOnly",
        parallelism={"tensor": 4, "pipeline": 2, "expert": 1},
        budget={"gpus": 16, "nodes": 3},
    )

    assert request == Request(
        workload=Workload(
            input_tokens=1000,
            output_tokens=100,
            concurrency=8,
            max_model_len=5000,
            kv_cache_dtype="fp8",
        ),
        objective=Objective(
            optimize_for=OptimizeFor.THROUGHPUT, ttft_seconds=1.5, tpot_seconds=0.025
        ),
        space=SearchSpace(replicas=2, tensor=4, pipeline=2, expert=1, max_gpus=16, max_nodes=3),
        storage=Storage.HUB,
        deploy=False,
    )


@pytest.mark.parametrize(("input_tokens", "longest"), [(1000, 4096), (5000, 5512)])
def test_requests_that_nobody_asked_for_end_at_the_context_that_the_engine_takes_by_itself(
    input_tokens: int, longest: int
) -> None:
    model = replace(MODEL, own_context_tokens=4096)
    spec = parse_manifest(a_sharded_model(workload={"inputTokens": input_tokens})).spec

    load = to_request(spec, model).workload

    assert (load.max_model_len, load.open_model_len) == (input_tokens + 512, longest)


def test_a_load_longer_than_the_context_is_refused_with_the_gap() -> None:
    with pytest.raises(
        InputError,
        match=r"spec\.workload\.inputTokens: 33,000 tokens .* the 32,768 of .*, 232 too many",
    ):
        request_of(workload={"inputTokens": 32_000, "outputTokens": 1000})


def test_a_pinned_length_above_the_context_is_refused_where_it_stands() -> None:
    with pytest.raises(InputError, match=r"spec\.engine\.maxModelLen: 40,000 tokens"):
        request_of(engine={"maxModelLen": 40_000})


@pytest.mark.parametrize("fill", [False, True])
def test_the_plan_of_a_stopped_model_is_that_of_a_model_whose_number_is_planned(
    *, fill: bool
) -> None:
    budget = {"gpus": 8, "fill": fill}
    stopped, planned = request_of(replicas=0, budget=budget), request_of(budget=budget)

    assert (stopped.space.replicas, stopped) == (None, planned)


@pytest.mark.parametrize("word", list(OptimizeFor))
def test_every_objective_of_the_planner_can_be_asked_for(word: OptimizeFor) -> None:
    assert request_of(objective={"optimizeFor": word.value}).objective.optimize_for is word


def test_arrivals_cache_experts_and_drafts_reach_the_planner_as_shares() -> None:
    load = request_of(
        workload={
            "requestsPerSecond": 2.5,
            "prefixCacheHitPercent": 30,
            "expertImbalancePercent": 150,
        },
        engine={"speculation": {"method": "PromptLookup", "tokens": 3, "acceptancePercent": 60}},
    ).workload

    assert (load.requests_per_second, load.prefix_cache_hit_rate, load.expert_imbalance) == (
        2.5,
        0.3,
        1.5,
    )
    assert (load.draft_tokens, load.draft_acceptance) == (3, 0.6)


def test_pins_reach_the_search_and_a_partition_pins_its_stages() -> None:
    space = request_of(
        parallelism={"dataParallelAttention": 2, "context": 4, "partition": [15, 13]}
    ).space

    assert (space.attention_data, space.context, space.partition, space.pipeline) == (
        2,
        4,
        (15, 13),
        2,
    )


def test_limits_may_speak_of_the_95th_percentile() -> None:
    assert request_of(
        objective={"statistic": "P95", "ttftMilliseconds": 500}
    ).objective == Objective(ttft_seconds=0.5, statistic=Statistic.P95)


def test_weights_on_a_claim_are_read_from_there() -> None:
    assert request_of(model={"id": "a/b", "weights": {"uri": "pvc://c"}}).storage is Storage.CLAIM
    kept = {"cache": {"claimName": "c"}}
    assert request_of(model={"id": "a/b", "weights": kept}).storage is Storage.KEPT
    assert request_of(model={"id": "a/b", "weights": {"uri": "oci://c"}}).storage is Storage.IMAGE


@pytest.mark.parametrize(
    ("storage", "size"), [("900Gi", 900 * 2**30), ("2T", 2 * 10**12), (None, None)]
)
def test_the_size_of_a_pods_own_cache_is_known_to_the_plan(
    storage: str | None, size: int | None
) -> None:
    cache = {"storage": storage} if storage else {"claimName": "hub"}

    assert request_of(model={"id": "a/b", "weights": {"cache": cache}}).cache_bytes == size
