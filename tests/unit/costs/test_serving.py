"""Serving: batches share weights, pipelines need batches in flight, prompts take their share,
queues wait.
"""

from dataclasses import replace

import pytest

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.communication import NETWORK_EFFICIENCY
from shardwright.costs.estimates import Estimate, Performance
from shardwright.costs.estimator import Estimator, estimate
from shardwright.costs.speed import UNEVEN_STEPS, serve
from shardwright.costs.workload import Arrival, Workload
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from tests.support.builders_plan import a_model, a_network, a_pool, an_nvl72_pool, vllm_traits

LOAD = Workload(input_tokens=2048, output_tokens=512, concurrency=64, max_model_len=3072)


def _estimate(model: str, layout: Layout, pool: Pool, load: Workload = LOAD) -> Estimate:
    return estimate(
        a_model(model),
        Candidate(layout=layout, pool=pool, placement=place(pool, layout)),
        load,
        vllm_traits(),
    )


def _speed(model: str, layout: Layout, pool: Pool, load: Workload = LOAD) -> Performance:
    return _estimate(model, layout, pool, load).performance


def test_one_request_reads_all_weights_for_every_token() -> None:
    load = replace(LOAD, concurrency=1)
    speed = _speed("llama-70b", Layout(tensor=4), a_pool(), load)

    least = 70e9 * 2 / 4 / 3.35e12  # bytes of a rank over the data sheet's bandwidth
    assert least < speed.tpot_seconds < 2 * least


def test_a_batch_shares_the_weights() -> None:
    one, many = (
        _speed("llama-70b", Layout(tensor=8), a_pool(), replace(LOAD, concurrency=n))
        for n in (1, 32)
    )

    assert many.output_tokens_per_second > 8 * one.output_tokens_per_second
    assert many.tpot_seconds > one.tpot_seconds


def test_one_request_in_a_pipeline_gains_nothing_from_overlap() -> None:
    load = replace(LOAD, concurrency=1)
    flat, deep = (_speed("llama-8b", Layout(pipeline=p), a_pool(), load) for p in (1, 4))

    assert deep.tpot_seconds >= flat.tpot_seconds
    assert "Bubble" not in {share.name for share in deep.decode_shares}


def test_as_many_batches_as_stages_keep_every_stage_busy() -> None:
    """With 64 in flight two stages of half the layers work at once on 32 each: faster than one,
    less than twice.
    """
    flat, deep = (_speed("llama-8b", Layout(pipeline=p), a_pool()) for p in (1, 2))

    assert 1.0 < deep.output_tokens_per_second / flat.output_tokens_per_second < 2.0


def test_one_loop_prepares_the_steps_of_all_micro_batches() -> None:
    """Where preparing a step takes longer than any stage works on it, P micro-batches come no
    faster than P times that.

    Every further one of them makes all of them wait a little.
    """
    layout, fitted = (Layout(pipeline=4), replace(coefficients_of("vLLM", ""), step_seconds=0.1))
    pool = a_pool()
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    task = Estimator(a_model("llama-8b"), LOAD, vllm_traits()).task(candidate)

    assert serve(task.replica, task.load, fitted).cycle_seconds == pytest.approx(
        4 * 0.1 * (1 + 3 * UNEVEN_STEPS)
    )


def test_the_host_launches_steps_with_prompts_and_graphs_those_that_decode() -> None:
    fitted = coefficients_of("vLLM", "")
    pool, layout = a_pool(), Layout(tensor=8)
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    # A prompt of a few tokens is nothing for the GPU.
    load = replace(LOAD, input_tokens=16, concurrency=1)
    task = Estimator(a_model("llama-8b"), load, vllm_traits()).task(candidate)

    slow, fast = (
        serve(task.replica, task.load, replace(fitted, launch_seconds=each)) for each in (1e-3, 0.0)
    )
    products = task.replica.kinds[0].floor.products
    assert products == 32 * 7
    # They overlap, so that the sum is less than both and no less than the longer.
    assert products * 1e-3 < slow.prefill_seconds - fitted.request_seconds
    assert slow.prefill_seconds < products * 1e-3 + fast.prefill_seconds
    assert slow.cycle_seconds == fast.cycle_seconds
    eager = serve(replace(task.replica, eager=True), task.load, fitted)
    assert eager.cycle_seconds > fast.cycle_seconds


def test_the_slowest_stage_sets_the_pace() -> None:
    """80 layers over 3 stages: with requests for all, a token comes no faster than three times the
    longest stage.
    """
    held = _estimate("llama-70b", Layout(tensor=2, pipeline=3), a_pool())
    longest = max(stage.weights_bytes for stage in held.stages) / 3.35e12

    assert held.performance.tpot_seconds > 3 * longest


def test_uneven_stages_wait_for_the_longest() -> None:
    """28 layers over 8 stages: four stages of four layers set the pace for four of three."""
    speed = _speed("qwen2.5-7b", Layout(pipeline=8), a_pool())
    waiting = sum(share.seconds for share in speed.decode_shares if share.name == "Bubble")

    assert waiting > 0.05 * speed.tpot_seconds


def test_a_network_as_fast_as_the_node_s_link_makes_two_nodes_equal_one() -> None:
    pool = a_pool("H100-SXM-80GB", 2, gpus_per_node=4)
    assert pool.gpu.scale_up is not None
    fast = replace(
        pool,
        network=replace(
            a_network(), bytes_per_second=1e18, latency_seconds=pool.gpu.scale_up.latency_seconds
        ),
    )

    split = _speed("llama-70b", Layout(tensor=4, pipeline=2), fast)
    together = _speed("llama-70b", Layout(tensor=4, pipeline=2), a_pool())

    assert split.tpot_seconds == pytest.approx(together.tpot_seconds, rel=0.01)


@pytest.mark.parametrize(("tensor", "stages"), [(8, 2), (8, 4), (4, 4)])
def test_every_tensor_rank_hands_its_slice_to_each_following_stage(
    tensor: int, stages: int
) -> None:
    """On a network so slow that only bytes count: 64 tokens of 8,192 hidden and residual values,
    one prompt token each.
    """
    nodes = tensor * stages // 8
    slow = replace(a_network(), bytes_per_second=1e6, latency_seconds=0.0)
    pool = replace(
        a_pool(nodes=stages, gpus_per_node=tensor) if tensor < 8 else a_pool(nodes=nodes),
        network=slow,
    )
    load = replace(LOAD, input_tokens=1, output_tokens=512, concurrency=stages)
    speed = _speed("llama-70b", Layout(tensor=tensor, pipeline=stages), pool, load)

    sent = sum(
        share.seconds for share in speed.decode_shares if share.name == "PipelineCommunication"
    )
    one = 2 * 8192 * 2 / tensor / (1e6 * NETWORK_EFFICIENCY)  # a micro-batch has one token
    assert sent == pytest.approx((stages - 1) * one, rel=0.1)


def test_a_static_batch_of_two_rounds_waits_half_a_round_for_its_first_token_on_the_mean() -> None:
    load = replace(LOAD, arrival=Arrival.STATIC_BATCH, concurrency=1)
    held = _estimate(
        "llama-8b", Layout(), a_pool("L4-24GB", gpus_per_node=1), replace(load, concurrency=4096)
    )
    one = _speed(
        "llama-8b",
        Layout(),
        a_pool("L4-24GB", gpus_per_node=1),
        replace(load, concurrency=int(held.kv_requests)),
    )
    rounds = 4096 / held.performance.running_requests

    stay = one.ttft_seconds + 512 * one.tpot_seconds
    assert held.performance.ttft_seconds == pytest.approx((rounds - 1) / 2 * stay, rel=0.1)


def test_requests_that_do_not_fit_wait_and_are_counted() -> None:
    held = _estimate("llama-8b", Layout(), a_pool("L4-24GB", gpus_per_node=1))
    speed = held.performance

    assert (
        held.kv_requests < speed.running_requests < 64
    )  # while they grow, more fit than at their full length
    assert speed.ttft_seconds == pytest.approx(
        64 / speed.requests_per_second - 512 * speed.tpot_seconds
    )
    assert max(speed.prefill_shares, key=lambda share: share.seconds).name == "Queue"


def test_prompts_of_others_slow_every_token() -> None:
    short, long = (
        _speed(
            "llama-70b",
            Layout(tensor=8),
            a_pool(),
            replace(LOAD, input_tokens=n, max_model_len=32768),
        )
        for n in (128, 16384)
    )

    prefill = [
        sum(s.seconds for s in speed.decode_shares if s.name == "Prefill")
        for speed in (short, long)
    ]
    assert prefill[1] > 20 * prefill[0]


def test_a_single_output_token_takes_time_too() -> None:
    speed = _speed(
        "llama-8b",
        Layout(),
        a_pool(),
        replace(LOAD, input_tokens=1, output_tokens=1, concurrency=1),
    )

    assert speed.tpot_seconds > 0


def test_replicas_multiply_throughput_at_the_same_load_each() -> None:
    one = _speed("llama-8b", Layout(), a_pool(), replace(LOAD, concurrency=16))
    four = _speed("llama-8b", Layout(replicas=4), a_pool(), replace(LOAD, concurrency=64))

    assert four.output_tokens_per_second == pytest.approx(4 * one.output_tokens_per_second)
    assert four.tpot_seconds == one.tpot_seconds


def test_more_replicas_than_requests_add_no_throughput() -> None:
    load = replace(LOAD, concurrency=2)
    two, eight = (_speed("llama-8b", Layout(replicas=n), a_pool(), load) for n in (2, 8))

    assert eight.output_tokens_per_second == two.output_tokens_per_second


def test_a_small_batch_touches_few_experts() -> None:
    """8 of 128 experts per token: one request reads far less than the weights it holds."""
    load = replace(LOAD, concurrency=1)
    speed = _speed("qwen3-30b-a3b", Layout(), a_pool(), load)
    reading = next(share.seconds for share in speed.decode_shares if share.name == "Weights")

    assert reading < 0.25 * 61e9 / 3.35e12 / 0.7


def test_the_parts_of_a_token_s_time_add_up() -> None:
    for layout in (Layout(), Layout(tensor=2), Layout(pipeline=2), Layout(tensor=2, pipeline=3)):
        speed = _speed("llama-8b", layout, a_pool())
        assert sum(share.seconds for share in speed.decode_shares) == pytest.approx(
            speed.tpot_seconds, rel=0.03
        )
        assert sum(share.seconds for share in speed.prefill_shares) == pytest.approx(
            speed.ttft_seconds, rel=0.01
        )


def test_the_band_is_wide_where_nothing_was_measured() -> None:
    inside = _speed("llama-70b", Layout(tensor=8), a_pool())
    across = _speed("llama-70b", Layout(tensor=8, pipeline=2), a_pool(nodes=2))
    rack = _speed("deepseek-v3", Layout(tensor=8), an_nvl72_pool())
    tray = _speed("deepseek-v3", Layout(tensor=4), an_nvl72_pool())
    uneven = _speed("llama-70b", Layout(tensor=2, pipeline=3), a_pool())

    assert inside.basis == "fitted"
    for speed in (across, rack, tray, uneven):
        assert speed.basis == "modelled"
        assert speed.high / speed.output_tokens_per_second >= 1.4
        assert speed.low / speed.output_tokens_per_second <= 0.6


@pytest.mark.parametrize(
    ("tensor", "input_tokens", "concurrency", "published"),
    [(8, 7373, 64, 2106.99), (4, 922, 4, 402.34), (1, 922, 64, 1675.86)],
    ids=["long-prompts", "lightly-loaded", "one-gpu"],
)
def test_predictions_are_near_what_was_published(
    tensor: int, input_tokens: int, concurrency: int, published: float
) -> None:
    """Llama-3.3-70B FP8 on H200 with vLLM, 922 output tokens, closed loop; source: InferenceX,
    output tokens/s.
    """
    load = Workload(
        input_tokens=input_tokens, output_tokens=922, concurrency=concurrency, max_model_len=9216
    )

    speed = _speed("llama-70b-fp8", Layout(tensor=tensor), a_pool("H200-SXM-141GB"), load)

    assert speed.output_tokens_per_second == pytest.approx(published, rel=0.25)
