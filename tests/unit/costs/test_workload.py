"""What a workload says beside lengths and requests in flight shows in the speed, and only there."""

from dataclasses import replace

from shardwright.costs.estimates import Performance
from shardwright.costs.estimator import estimate
from shardwright.costs.workload import Arrival, Workload
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.placing import place
from tests.support.builders_plan import a_model, a_pool, vllm_traits

LOAD = Workload(input_tokens=4096, output_tokens=512, concurrency=64, max_model_len=8192)


def _speed(load: Workload, model: str = "llama-70b", layout: Layout | None = None) -> Performance:
    pool, layout = a_pool(), layout or Layout(tensor=8)
    candidate = Candidate(layout=layout, pool=pool, placement=place(pool, layout))
    return estimate(a_model(model), candidate, load, vllm_traits()).performance


def test_cached_prefixes_are_not_computed_again() -> None:
    cold, warm = (_speed(replace(LOAD, prefix_cache_hit_rate=rate)) for rate in (0.0, 0.9))

    assert warm.ttft_seconds < 0.5 * cold.ttft_seconds
    assert warm.output_tokens_per_second > cold.output_tokens_per_second
    assert warm.basis == "modelled"


def test_uneven_experts_slow_the_busiest_rank_and_sliced_ones_not_at_all() -> None:
    load = replace(LOAD, input_tokens=1024)
    for layout, slows in ((Layout(tensor=4, expert=4), True), (Layout(tensor=4), False)):
        even, uneven = (
            _speed(replace(load, expert_imbalance=factor), "qwen3-30b-a3b", layout)
            for factor in (1.0, 3.0)
        )
        assert (uneven.tpot_seconds > even.tpot_seconds) == slows


def test_accepted_drafts_make_tokens_faster_and_refused_ones_slower() -> None:
    load = replace(LOAD, concurrency=1)
    none, good, bad = (
        _speed(replace(load, draft_tokens=drafts, draft_acceptance=chance))
        for drafts, chance in ((0, 0.0), (3, 0.8), (3, 0.0))
    )

    assert good.tpot_seconds < 0.5 * none.tpot_seconds
    assert bad.tpot_seconds >= none.tpot_seconds
    assert good.basis == "modelled"


def test_a_saturated_engine_runs_what_fits() -> None:
    speed = _speed(replace(LOAD, concurrency=100_000, arrival=Arrival.SATURATED))

    assert LOAD.concurrency < speed.running_requests < 2048
    assert "Queue" not in {
        share.name for share in speed.prefill_shares if share.seconds > speed.ttft_seconds
    }


def test_a_static_batch_that_does_not_fit_goes_in_rounds() -> None:
    small, large = (
        _speed(replace(LOAD, concurrency=n, arrival=Arrival.STATIC_BATCH)) for n in (16, 2048)
    )

    assert large.running_requests < 2048
    assert large.ttft_seconds > small.ttft_seconds
