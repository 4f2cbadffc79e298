"""Laws of what is tried and what is chosen, whatever the cost model says."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.enumerate import enumerate_candidates
from shardwright.layouts.layout import SearchSpace
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import OptimizeFor, Request, Statistic
from tests.support.builders_plan import (
    a_model,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)
from tests.support.examples import examples

laws = examples(10)

models = st.sampled_from(["llama-8b", "llama-70b", "qwen2.5-7b", "qwen3-30b-a3b"])
objectives = st.sampled_from(list(OptimizeFor))


@st.composite
def pools(draw: st.DrawFn, name: str = "pool") -> Pool:
    gpu = draw(st.sampled_from(["H100-SXM-80GB", "L40S-48GB", "MI300X-192GB"]))
    nodes = draw(st.integers(1, 3))
    return a_pool(
        gpu, nodes, name=name, free={index: draw(st.integers(0, 8)) for index in range(nodes)}
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    return a_request(
        draw(objectives),
        input_tokens=draw(st.integers(1, 4000)),
        output_tokens=draw(st.integers(1, 1000)),
        concurrency=draw(st.integers(1, 200)),
    )


def _plan(model: str, inventory: Inventory, request: Request) -> Report:
    return make_plan(a_model(model), inventory, request, vllm_traits())


@laws
@given(model=models, pool=pools(), rack=st.booleans(), pin=st.none() | st.integers(1, 4))
def test_degrees_multiply_to_the_gpus_of_the_placement_and_none_comes_twice(
    model: str,
    pool: Pool,
    rack: bool,  # noqa: FBT001
    pin: int | None,
) -> None:
    space = SearchSpace(attention_data=pin)
    inventory = an_inventory(an_nvl72_pool(3) if rack else pool)
    found = list(enumerate_candidates(a_model(model), inventory, space, vllm_traits()))

    for item in found:
        layout, placement = item.layout, item.placement
        assert (
            layout.tensor * layout.pipeline * layout.attention_data
            == placement.nodes_per_replica * placement.gpus_per_node
        )
        assert sum(layout.partition) in (0, len(a_model(model).layers))
        assert layout.expert in (1, layout.tensor * layout.attention_data)
    assert len({item.layout for item in found}) == len(found)


@laws
@given(model=models, pool=pools(), request=requests(), data=st.data())
def test_taking_a_pin_away_never_turns_a_plan_into_none(
    model: str, pool: Pool, request: Request, data: st.DataObject
) -> None:
    pins = [
        SearchSpace(tensor=2),
        SearchSpace(pipeline=2),
        SearchSpace(tensor=4, pipeline=1),
        SearchSpace(context=1),
    ]
    pinned = replace(request, space=data.draw(st.sampled_from(pins)))

    before, after = (_plan(model, an_inventory(pool), asked).outcome for asked in (pinned, request))

    assert isinstance(after, Plan) or isinstance(before, NoPlan)


@laws
@given(model=models, pool=pools(), request=requests(), limit=st.floats(0.005, 0.2))
def test_what_meets_a_limit_at_the_95th_percentile_meets_it_on_the_mean(
    model: str, pool: Pool, request: Request, limit: float
) -> None:
    strict = replace(
        request.objective, tpot_seconds=limit, ttft_seconds=100 * limit, statistic=Statistic.P95
    )
    mean = replace(strict, statistic=Statistic.MEAN)

    before, after = (
        _plan(model, an_inventory(pool), replace(request, objective=goal)).outcome
        for goal in (strict, mean)
    )

    assert isinstance(after, Plan) or isinstance(before, NoPlan)


@laws
@given(
    model=models, pool=pools(), request=requests(), gpus=st.integers(1, 16), more=st.integers(0, 8)
)
def test_filling_stays_within_the_budget_and_a_larger_one_never_turns_a_plan_into_none(
    model: str, pool: Pool, request: Request, gpus: int, more: int
) -> None:
    small, large = (
        replace(
            request,
            space=SearchSpace(replicas=request.workload.concurrency, fill=True, max_gpus=budget),
        )
        for budget in (gpus, gpus + more)
    )

    before, after = (_plan(model, an_inventory(pool), asked).outcome for asked in (small, large))

    if isinstance(before, Plan):
        assert before.layout.gpus <= gpus
        assert len(before.groups) == before.layout.replicas
        assert isinstance(after, Plan)


@laws
@given(
    model=models,
    first=pools("a"),
    second=pools("b"),
    request=requests(),
    factor=st.sampled_from([0.25, 4.0]),
)
def test_another_currency_changes_no_choice(
    model: str, first: Pool, second: Pool, request: Request, factor: float
) -> None:
    def _chosen(rate: float) -> tuple[object, ...]:
        priced = [
            replace(pool, gpu_hour_price=price * rate)
            for pool, price in ((first, 2.0), (second, 3.0))
        ]
        outcome = _plan(model, an_inventory(*priced), request).outcome
        return (
            (outcome.pool, outcome.layout) if isinstance(outcome, Plan) else (outcome.problem.code,)
        )

    assert _chosen(1.0) == _chosen(factor)


@laws
@given(pool=pools(), request=requests(), cheaper=st.floats(0.01, 1))
def test_a_cheaper_pool_that_is_chosen_stays_chosen_when_it_gets_cheaper(
    pool: Pool, request: Request, cheaper: float
) -> None:
    other = a_pool("B200-SXM-180GB", name="other")
    prices = [
        [replace(pool, gpu_hour_price=2.0 * share), replace(other, gpu_hour_price=4.0)]
        for share in (1.0, cheaper)
    ]

    before, after = (_plan("llama-8b", an_inventory(*priced), request).outcome for priced in prices)

    if isinstance(before, Plan) and before.pool == pool.name:
        assert isinstance(after, Plan)
        assert after.pool == pool.name
