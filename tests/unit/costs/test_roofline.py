"""One step of one stage, formula by formula: what is read, what is computed, what is said to the
others.
"""

from dataclasses import replace

import pytest

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.communication import Fabric
from shardwright.costs.roofline import AttentionFloor, Batch, Links, StageFloor, StepTime, step_time
from shardwright.hardware.gpus import load_gpus

FITTED = coefficients_of("vLLM", "")
NVLINK = load_gpus()["H100-SXM-80GB"].scale_up
ALONE = Links(
    tensor=Fabric(), experts=Fabric(), context=Fabric(), peers=1, expert_groups=1, hidden_bytes=8192
)
HOT_SHARE = 8 / 128
NOTHING = StageFloor(
    layers=4,
    expert_layers=4,
    products=28,
    experts=128,
    hot_share=HOT_SHARE,
    weights_seconds=0.0,
    expert_weights_seconds=0.0,
    token_seconds=0.0,
    expert_token_seconds=0.0,
    head_token_seconds=0.0,
    hidden_token_seconds=0.0,
    attention=(),
    widened=False,
    four_bit_bytes=0.0,
    expert_widened=False,
    expert_columns=float("inf"),
    product="NVIDIA 9 16 bits",
    expert_product="NVIDIA 9 fp8",
    formats=("bf16",),
)

SLIDING = AttentionFloor(
    window_tokens=1024.0,
    kv_seconds=1e-9,
    decode_seconds=1e-12,
    prefill_seconds=1e-10,
    state_seconds=0.0,
)
RECURRENT = AttentionFloor(
    window_tokens=1.0, kv_seconds=0.0, decode_seconds=0.0, prefill_seconds=0.0, state_seconds=1e-6
)


def _step(floor: StageFloor, links: Links = ALONE, **batch: float) -> StepTime:
    return step_time(floor, links, Batch(**batch), FITTED)


@pytest.mark.parametrize(
    ("tokens", "evenness", "touched"),
    [
        (1, 0.5, 8 / 128),
        (1, 1e7, 8 / 128),
        (2, 1e7, 1 - (1 - 8 / 128) ** 2),  # all experts are wanted alike
        (2, 0.5, 2 * 8 / 128 - 8 / 128 * 1.5 / (0.5 / (8 / 128) + 1)),  # both want the same more
        (10**9, 1e4, 1.0),
    ],
)
def test_of_the_experts_those_are_read_that_a_batch_is_expected_to_touch(
    tokens: int, evenness: float, touched: float
) -> None:
    fitted = replace(FITTED, expert_evenness=evenness)
    batch = Batch(sequences=tokens)
    step = step_time(replace(NOTHING, expert_weights_seconds=1.0), ALONE, batch, fitted)

    assert step.weights_seconds == pytest.approx(touched / FITTED.memory_efficiency, rel=1e-5)


def test_kernels_of_four_bits_take_in_no_more_however_fast_the_memory() -> None:
    most = FITTED.four_bit_bytes_per_second
    slow, fast = (
        _step(replace(NOTHING, weights_seconds=1.0, four_bit_bytes=bandwidth))
        for bandwidth in (0.5 * most, 2 * most)
    )

    assert slow.weights_seconds == pytest.approx(1 / FITTED.memory_efficiency)
    assert fast.weights_seconds == pytest.approx(2.0)


def test_the_tokens_of_all_attention_replicas_meet_in_the_experts() -> None:
    computing = replace(NOTHING, expert_token_seconds=1e-6, expert_weights_seconds=1e-12)
    alone, together = (
        _step(computing, sequences=80),
        _step(computing, replace(ALONE, peers=8), sequences=10),
    )

    assert together.compute_seconds == pytest.approx(alone.compute_seconds)


def test_an_expert_that_is_touched_computes_some_rows_more_than_it_has() -> None:
    computing = replace(NOTHING, expert_token_seconds=1e-6, expert_weights_seconds=1e-12)
    rows = 10_000 * HOT_SHARE * 128 + 128 * FITTED.saturation_tokens * FITTED.expert_padding

    assert _step(computing, sequences=10_000).compute_seconds == pytest.approx(
        rows * 1e-6 / FITTED.expert_share(computing.expert_product)
    )


def test_the_busiest_of_more_groups_of_experts_has_more_to_do_unless_a_load_states_how_much() -> (
    None
):
    computing = replace(NOTHING, expert_token_seconds=1e-6, expert_weights_seconds=1e-12)

    def seconds(groups: int, **stated: float) -> float:
        links = replace(ALONE, expert_groups=groups)
        # So many that every expert is touched, and padding weighs nothing.
        return _step(computing, links, sequences=1e9, **stated).compute_seconds

    more = [seconds(groups) / seconds(1) - 1 for groups in (2, 4, 8)]
    assert more == pytest.approx([FITTED.expert_imbalance * n for n in (1, 2, 3)], rel=1e-3)
    assert seconds(8, expert_imbalance=1.5) == pytest.approx(1.5 * seconds(1), rel=1e-3)


@pytest.mark.parametrize("product", ["NVIDIA 9 fp8", "NVIDIA 10 nvfp4", "of no row"])
def test_products_reach_the_share_of_their_generation_and_format(product: str) -> None:
    reached = FITTED.dense.get(product, FITTED.dense[""])
    computing = replace(NOTHING, token_seconds=1e-3, product=product)

    rows = 100 + FITTED.saturation_tokens
    assert _step(computing, sequences=100).compute_seconds == pytest.approx(
        rows * 1e-3 / (FITTED.compute_efficiency * reached)
    )


def test_a_window_bounds_what_is_read_and_what_is_computed_of_the_context() -> None:
    sliding = replace(NOTHING, attention=(SLIDING,))

    short, long = (_step(sliding, sequences=8, context_tokens=tokens) for tokens in (1024, 100_000))
    assert short == long
    assert short.kv_cache_seconds == pytest.approx(8 * 1024e-9 / FITTED.kv_efficiency, rel=0.01)
    prompts = [
        _step(sliding, prompt_tokens=512, prompt_context_tokens=tokens).compute_seconds
        for tokens in (1024, 100_000)
    ]
    assert prompts == pytest.approx([512 * 1024e-10 / FITTED.attention_efficiency] * 2)


def test_a_recurrent_state_is_read_once_per_sequence_whatever_its_context() -> None:
    recurrent = replace(NOTHING, attention=(RECURRENT,))

    assert _step(recurrent, sequences=8, context_tokens=9e4).kv_cache_seconds == pytest.approx(
        8e-6 / FITTED.kv_efficiency
    )


def test_every_token_goes_to_every_rank_whether_it_has_an_expert_for_it_or_not() -> None:
    """8 experts per token on 16 ranks: what is gathered are the tokens of all of them, whole
    experts or slices.
    """
    spread = replace(NOTHING, experts=8)
    wide = replace(
        ALONE, experts=Fabric(inner_ranks=16, inner=NVLINK), peers=16, hidden_bytes=2**20
    )
    whole, sliced = (
        _step(
            spread, replace(wide, expert_groups=groups), sequences=10_000
        ).expert_communication_seconds
        for groups in (16, 1)
    )
    assert whole == sliced

    twice = replace(wide, experts=Fabric(inner_ranks=32, inner=NVLINK), peers=32)
    assert _step(
        spread, twice, sequences=10_000
    ).expert_communication_seconds / whole == pytest.approx(2 * (31 / 32) / (15 / 16), rel=0.01)


def test_ranks_that_share_k_v_pay_for_it_in_every_layer() -> None:
    shared = replace(ALONE, context=Fabric(inner_ranks=4, inner=NVLINK))

    one, two = (
        _step(replace(NOTHING, layers=n), shared, sequences=64).context_communication_seconds
        for n in (1, 2)
    )
    assert _step(NOTHING, sequences=64).context_communication_seconds == 0
    assert two == pytest.approx(2 * one)
