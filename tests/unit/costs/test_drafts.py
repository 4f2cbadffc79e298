"""A draft model beside the one that is served: its bytes, counted by hand, its K/V and the time of
its passes.
"""

from dataclasses import replace

import pytest

from shardwright.costs.drafts import draft_activation_bytes, draft_load_bytes, draft_weight_bytes
from shardwright.costs.estimates import Estimate
from shardwright.costs.estimator import Estimator, estimate
from shardwright.costs.kvcache import kv_cache
from shardwright.costs.working_memory import activation_bytes
from shardwright.costs.workload import Limits, Workload
from shardwright.layouts.layout import Candidate, Drafter, EngineTraits, Layout
from shardwright.layouts.placing import place
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from tests.support.builders_model import a_config, catalogued
from tests.support.builders_plan import a_model, a_pool, vllm_traits

TINY = read_model(
    a_config(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128256,
        tie_word_embeddings=True,
    ),
    source="tiny",
)

LOAD = Workload(
    input_tokens=2048,
    output_tokens=512,
    concurrency=8,
    max_model_len=3072,
    draft_tokens=3,
    draft_acceptance=0.7,
)


def drafting(model: ModelSpec = TINY) -> EngineTraits:
    return vllm_traits(drafter=Drafter(model=model))


def estimated(
    traits: EngineTraits, load: Workload = LOAD, layout: Layout | None = None
) -> Estimate:
    pool, layout = a_pool(), layout or Layout(tensor=4)
    return estimate(
        a_model("llama-70b"),
        Candidate(layout=layout, pool=pool, placement=place(pool, layout)),
        load,
        traits,
    )


@pytest.mark.parametrize(
    ("tensor", "layer", "embedding"),
    [
        (1, 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64, 128256 * 64),
        (2, 64 * 64 + 32 * 64 + 3 * 64 * 64, 64128 * 64),
        (
            4,
            (32 * 64) + 2 * (16 * 64) + 3 * 32 * 64,
            32064 * 64,
        ),  # one whole K/V head on every rank
    ],
    ids=["one rank", "two ranks", "more ranks than K/V heads"],
)
def test_every_tensor_rank_holds_its_slice_of_a_draft_model(
    tensor: int, layer: int, embedding: int
) -> None:
    elements = 2 * (layer + 2 * 64) + 64 + embedding

    assert draft_weight_bytes(Layout(tensor=tensor), drafting()) == 2 * elements


def test_without_a_draft_model_nothing_is_held_or_read() -> None:
    assert (
        draft_weight_bytes(Layout(), vllm_traits()),
        draft_load_bytes(Layout(), vllm_traits(), 8),
    ) == (0, 0)


def test_a_node_reads_a_draft_model_once_and_whole() -> None:
    whole = draft_weight_bytes(Layout(), drafting())

    assert [draft_load_bytes(Layout(tensor=tensor), drafting(), 8) for tensor in (1, 8)] == [
        whole,
        whole,
    ]
    assert (
        estimated(drafting()).load_bytes_per_node - estimated(vllm_traits()).load_bytes_per_node
        == whole
    )


def test_the_weights_of_a_draft_model_are_told_apart_and_all_parts_add_up() -> None:
    (bare,), (drafted,) = (
        estimated(vllm_traits()).stages,
        estimated(drafting(catalogued("meta-llama/Llama-3.2-1B"))).stages,
    )

    assert (bare.draft_bytes, drafted.draft_bytes) == (
        0,
        drafted.weights_bytes - bare.weights_bytes,
    )
    assert (
        drafted.draft_bytes > 1_235_814_400 * 2 / 4
    )  # its parameters on four ranks, and the norms that each rank has
    parts = (
        drafted.weights_bytes
        + drafted.activations_bytes
        + drafted.overhead_bytes
        + drafted.kv_cache_bytes
    )
    assert parts == drafted.budget_bytes == bare.budget_bytes


def test_a_block_of_k_v_holds_the_layers_of_both_models() -> None:
    model, layout = a_model("llama-70b"), Layout(tensor=2)
    bare, drafted = (
        kv_cache(model, layout, 0, "auto", traits) for traits in (vllm_traits(), drafting())
    )

    of_a_token = 2 * (16 + 16) * 2  # two layers, one K/V head a rank, two bytes
    assert drafted.bytes_per_token - bare.bytes_per_token == of_a_token
    assert drafted.bytes_per_block - bare.bytes_per_block == 16 * of_a_token
    assert (
        kv_cache(model, layout, 0, "fp8", drafting()).bytes_per_token == drafted.bytes_per_token / 2
    )
    assert drafted.blocks_for_request(4096) == bare.blocks_for_request(4096)


def test_draft_passes_have_their_own_peak_beside_what_the_target_computed() -> None:
    model, layout, limits = (
        a_model("llama-70b"),
        Layout(tensor=4),
        Limits(batched_tokens=8192, sequences=64, model_len=3072),
    )

    peak = draft_activation_bytes(model, layout, limits, drafting())

    kept = 8192 * 8192 * 2
    assert peak == kept + activation_bytes(
        TINY, layout, limits, vllm_traits().memory.logit_copies, last=True
    )
    assert draft_activation_bytes(model, layout, limits, vllm_traits()) == 0


def test_a_draft_model_is_read_once_for_every_token_that_it_drafts() -> None:
    """Against a draft that costs nothing: 8 B parameters on four ranks, read three times in a step
    of 2.5 tokens.
    """
    load = replace(LOAD, concurrency=1)
    free, paid = (
        estimated(traits, load).performance for traits in (vllm_traits(), drafting(a_model()))
    )

    least = 3 * (8.03e9 - 128256 * 4096) * 2 / 4 / 3.35e12 / load.tokens_per_step
    read = {share.name: share.seconds for share in paid.decode_shares}["Weights"]
    assert read - {share.name: share.seconds for share in free.decode_shares}["Weights"] > least
    assert least < paid.tpot_seconds - free.tpot_seconds < 3.5 * least
    assert paid.ttft_seconds > free.ttft_seconds
    assert paid.basis == "modelled"


def test_more_drafts_take_longer_and_bring_more_where_they_are_accepted() -> None:
    def rate(tokens: int, acceptance: float) -> float:
        load = replace(LOAD, draft_tokens=tokens, draft_acceptance=acceptance)
        return estimated(
            drafting(catalogued("meta-llama/Llama-3.2-1B")), load
        ).performance.output_tokens_per_second

    assert rate(4, 0.9) > rate(2, 0.9)
    assert (
        rate(4, 0.0)
        < rate(2, 0.0)
        < estimated(
            vllm_traits(), replace(LOAD, draft_tokens=0)
        ).performance.output_tokens_per_second
    )


def test_an_estimator_under_another_load_has_the_same_draft_model() -> None:
    model, pool = a_model("llama-70b"), a_pool()
    candidate = Candidate(
        layout=Layout(tensor=4), pool=pool, placement=place(pool, Layout(tensor=4))
    )
    first = Estimator(model, LOAD, drafting())

    other = replace(LOAD, concurrency=4)
    assert first.under(other).estimate(candidate) == Estimator(model, other, drafting()).estimate(
        candidate
    )
