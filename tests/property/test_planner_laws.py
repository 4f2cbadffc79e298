"""Laws of the planner: what must hold for every model, pool and load, not only for the examples."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.costs.communication import Fabric, all_reduce_seconds, send_seconds
from shardwright.costs.estimator import estimate
from shardwright.hardware.gpus import Link, load_gpus
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.enumerate import enumerate_candidates
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from shardwright.planning.checks import Judge
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan
from shardwright.planning.request import OptimizeFor, Request
from shardwright.planning.select import Scale, select
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)
from tests.support.examples import examples

laws = examples(15)

models = st.sampled_from(["llama-8b", "llama-70b", "qwen2.5-7b", "qwen3-30b-a3b"])
gpus = st.sampled_from(["H100-SXM-80GB", "L40S-48GB", "MI300X-192GB", "B200-SXM-180GB"])
objectives = st.sampled_from(list(OptimizeFor))
degrees = st.sampled_from(
    [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (4, 2), (2, 4), (8, 2), (16, 1)]
)


@st.composite
def pools(draw: st.DrawFn, name: str = "pool") -> Pool:
    nodes = draw(st.integers(1, 4))
    free = {index: draw(st.integers(0, 8)) for index in range(nodes)}
    return a_pool(draw(gpus), nodes, name=name, free=free)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    return a_request(
        draw(objectives),
        input_tokens=draw(st.integers(1, 8000)),
        output_tokens=draw(st.integers(1, 2000)),
        concurrency=draw(st.integers(1, 300)),
        replicas=draw(st.integers(1, 3)),
        ttft_seconds=draw(st.none() | st.floats(0.05, 5)),
        tpot_seconds=draw(st.none() | st.floats(0.005, 0.1)),
    )


def _candidate(layout: Layout, pool: Pool) -> Candidate:
    return Candidate(layout=layout, pool=pool, placement=place(pool, layout))


@laws
@given(model=models, pool=pools(), request=requests())
def test_every_group_of_a_plan_has_room_on_its_nodes(
    model: str, pool: Pool, request: Request
) -> None:
    plan = make_plan(a_model(model), an_inventory(pool), request, vllm_traits()).outcome
    if isinstance(plan, NoPlan):
        return
    used: dict[str, int] = {}
    for group in plan.groups:
        assert len(group) == len(set(group)) == plan.nodes_per_replica
        for node in group:
            used[node] = used.get(node, 0) + plan.gpus_per_node
    assert len(plan.groups) == request.space.replicas == plan.layout.replicas
    assert sum(used.values()) == plan.layout.gpus
    assert all(used.get(node.name, 0) <= node.free for node in pool.nodes)


@laws
@given(model=models, pool=pools(), request=requests())
def test_every_rank_of_a_plan_holds_its_parts_and_one_request(
    model: str, pool: Pool, request: Request
) -> None:
    plan = make_plan(a_model(model), an_inventory(pool), request, vllm_traits()).outcome
    if isinstance(plan, NoPlan):
        return
    assert (
        plan.kv_tokens
        >= plan.max_model_len
        >= request.workload.input_tokens + request.workload.output_tokens
    )
    assert plan.max_batched_tokens >= plan.max_sequences
    for stage in plan.stages:
        parts = (
            stage.weights_bytes
            + stage.activations_bytes
            + stage.overhead_bytes
            + stage.kv_cache_bytes
        )
        assert parts == stage.budget_bytes <= pool.gpu.memory_bytes


@laws
@given(model=models, pool=pools(), request=requests(), longest=st.integers(1, 10**6))
def test_a_longest_request_that_nobody_asked_for_changes_nothing_else_of_a_plan(
    model: str, pool: Pool, request: Request, longest: int
) -> None:
    load = request.workload
    short = replace(load, max_model_len=load.input_tokens + load.output_tokens)
    wide = replace(short, open_model_len=short.max_model_len + longest)
    plan, longer = (
        make_plan(
            a_model(model), an_inventory(pool), replace(request, workload=each), vllm_traits()
        )
        for each in (short, wide)
    )

    if isinstance(plan.outcome, NoPlan) or isinstance(longer.outcome, NoPlan):
        assert plan == longer
        return
    assert short.max_model_len <= longer.outcome.max_model_len <= (wide.open_model_len or 0)
    of_length = replace(
        longer.outcome,
        max_model_len=plan.outcome.max_model_len,
        stages=plan.outcome.stages,
        kv_tokens=plan.outcome.kv_tokens,
        drain_seconds=plan.outcome.drain_seconds,
    )
    assert replace(longer, outcome=of_length) == plan


@laws
@given(model=models, first=pools("a"), second=pools("b"), request=requests(), data=st.data())
def test_the_order_of_nodes_and_pools_changes_nothing(
    model: str, first: Pool, second: Pool, request: Request, data: st.DataObject
) -> None:
    shuffled = replace(first, nodes=tuple(data.draw(st.permutations(first.nodes))))

    reports = [
        make_plan(a_model(model), Inventory(pools=order), request, vllm_traits()).outcome
        for order in ((first, second), (second, shuffled))
    ]

    assert reports[0] == reports[1]


@laws
@given(model=models, pool=pools(), request=requests(), more=st.integers(1, 200))
def test_more_memory_never_turns_a_plan_into_none(
    model: str, pool: Pool, request: Request, more: int
) -> None:
    request = replace(
        request, objective=replace(request.objective, ttft_seconds=None, tpot_seconds=None)
    )
    larger = replace(pool, gpu=replace(pool.gpu, memory_bytes=pool.gpu.memory_bytes + more * 10**9))

    before, after = (
        make_plan(a_model(model), an_inventory(p), request, vllm_traits()).outcome
        for p in (pool, larger)
    )

    assert isinstance(after, Plan) or isinstance(before, NoPlan)


@laws
@given(model=models, pool=pools(), request=requests(), share=st.floats(1, 100))
def test_relaxing_a_limit_never_turns_a_plan_into_none(
    model: str, pool: Pool, request: Request, share: float
) -> None:
    goal = request.objective
    relaxed = replace(
        request,
        objective=replace(
            goal,
            ttft_seconds=goal.ttft_seconds and goal.ttft_seconds * share,
            tpot_seconds=goal.tpot_seconds and goal.tpot_seconds * share,
        ),
    )

    before, after = (
        make_plan(a_model(model), an_inventory(pool), r, vllm_traits()).outcome
        for r in (request, relaxed)
    )

    assert isinstance(after, Plan) or isinstance(before, NoPlan)


@laws
@given(
    model=models,
    gpu=gpus,
    shape=degrees,
    request=requests(),
    faster=st.floats(1, 1000),
    quicker=st.floats(0, 1),
)
@example(
    "llama-8b",
    "B200-SXM-180GB",
    (2, 4),
    a_request(input_tokens=500, output_tokens=1, concurrency=79),
    1.0,
    0.5,
)
def test_faster_links_never_slow_anything(
    model: str, gpu: str, shape: tuple[int, int], request: Request, faster: float, quicker: float
) -> None:
    pool = a_pool(gpu, 2)
    layout = Layout(tensor=shape[0], pipeline=shape[1])

    def quickened(link: Link) -> Link:
        seconds = link.latency_seconds * quicker
        return replace(
            link, bytes_per_second=link.bytes_per_second * faster, latency_seconds=seconds
        )

    better_gpu = replace(
        pool.gpu,
        host=quickened(pool.gpu.host),
        scale_up=pool.gpu.scale_up and quickened(pool.gpu.scale_up),
    )
    better = replace(pool, gpu=better_gpu, network=quickened(pool.network))

    slow, fast = (
        estimate(a_model(model), _candidate(layout, p), request.workload, vllm_traits()).performance
        for p in (pool, better)
    )

    # Sooner answered, the next prompt comes sooner, too: of the first token alone it may be more.
    whole = (
        one.ttft_seconds + request.workload.output_tokens * one.tpot_seconds for one in (fast, slow)
    )
    assert next(whole) <= next(whole) * (1 + 1e-9)
    assert fast.tpot_seconds <= slow.tpot_seconds * (1 + 1e-9)
    assert fast.output_tokens_per_second >= slow.output_tokens_per_second * (1 - 1e-9)


@laws
@given(model=models, pool=pools(), request=requests(), data=st.data())
def test_a_dominated_candidate_changes_nothing(
    model: str, pool: Pool, request: Request, data: st.DataObject
) -> None:
    judge = Judge(a_model(model), request, vllm_traits())
    verdicts = [
        judge.verdict(item)
        for item in enumerate_candidates(
            a_model(model), an_inventory(pool), request.space, vllm_traits()
        )
    ]
    scale = Scale.of(request, an_inventory(pool))
    ranked = select(verdicts, scale)
    if not ranked:
        return
    dropped = data.draw(st.sampled_from(ranked)).candidate
    rest = [verdict for verdict in verdicts if verdict.candidate != dropped]

    assert select(rest, scale) == tuple(
        feasible for feasible in ranked if feasible.candidate != dropped
    )


@laws
@given(model=models, gpu=gpus, shape=degrees, first=st.integers(0, 2000), more=st.integers(1, 300))
def test_a_longer_prompt_never_comes_sooner(
    model: str, gpu: str, shape: tuple[int, int], first: int, more: int
) -> None:
    candidate = _candidate(Layout(tensor=shape[0], pipeline=shape[1]), a_pool(gpu, 2))
    short, long = (
        estimate(
            a_model(model),
            candidate,
            a_request(
                input_tokens=1 + tokens, output_tokens=100, concurrency=1, max_model_len=4096
            ).workload,
            vllm_traits(),
        ).performance
        for tokens in (first, first + more)
    )

    assert long.ttft_seconds >= short.ttft_seconds * (1 - 1e-9)


sizes = st.integers(0, 10**9)
fabrics = st.builds(
    Fabric,
    inner_ranks=st.integers(1, 8),
    inner=st.sampled_from([load_gpus()["H100-SXM-80GB"].scale_up, load_gpus()["L40S-48GB"].host]),
    outer_ranks=st.integers(1, 8),
    outer=st.just(a_network()),
    shared_host=st.booleans(),
    own_kernel=st.booleans(),
)


@given(fabric=fabrics, first=sizes, second=sizes)
def test_communication_is_monotone_in_bytes(fabric: Fabric, first: int, second: int) -> None:
    small, large = sorted((first, second))

    assert all_reduce_seconds(small, fabric) <= all_reduce_seconds(large, fabric)
    assert send_seconds(small, fabric.inner, network=False) <= send_seconds(
        large, fabric.inner, network=False
    )


@given(fabric=fabrics, size=sizes)
def test_doubling_every_link_never_slows_a_collective(fabric: Fabric, size: int) -> None:
    assert fabric.inner is not None
    assert fabric.outer is not None
    doubled = replace(
        fabric,
        inner=replace(fabric.inner, bytes_per_second=2 * fabric.inner.bytes_per_second),
        outer=replace(fabric.outer, bytes_per_second=2 * fabric.outer.bytes_per_second),
    )

    assert all_reduce_seconds(size, doubled) <= all_reduce_seconds(size, fabric)


@given(tensor=st.integers(1, 72), pipeline=st.integers(1, 16), rack=st.booleans())
def test_ranks_are_nodes_times_gpus_and_tensor_groups_are_never_cut_askew(
    tensor: int,
    pipeline: int,
    rack: bool,  # noqa: FBT001
) -> None:
    pool = an_nvl72_pool() if rack else a_pool(nodes=4)
    placement = place(pool, Layout(tensor=tensor, pipeline=pipeline))

    assert placement.nodes_per_replica * placement.gpus_per_node == tensor * pipeline
    assert placement.gpus_per_node <= pool.gpus_per_node
    assert placement.gpus_per_node % tensor == 0 or tensor % placement.gpus_per_node == 0
