"""Laws of memory: parts sum to the whole, more ranks never hold more, K/V grows with the tokens."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.costs.kvcache import kv_bytes_per_token, kv_cache
from shardwright.costs.weight_bytes import load_bytes_per_node, stage_weight_parts
from shardwright.layouts.layout import Layout, Remainder
from shardwright.layouts.stages import split_layers
from shardwright.modelspec.model_spec import GroupedAttention, ModelSpec
from shardwright.planning.shapes import shape_problems
from tests.support.builders_model import catalogued, oracle_traits
from tests.support.held_memory import stage_weight_bytes

MODELS = [
    catalogued(model_id)
    for model_id in (
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.2-1B",
        "Qwen/Qwen3-235B-A22B-FP8",
        "mistralai/Mixtral-8x7B-v0.1",
        "deepseek-ai/DeepSeek-V3",
        "deepseek-ai/DeepSeek-V2-Lite",
        "openai/gpt-oss-120b",
        "google/gemma-2-9b",
        "zai-org/GLM-4.5-Air",
    )
]

models = st.sampled_from(MODELS)
degrees = st.sampled_from((1, 2, 4, 8))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw a layout, with experts sliced or whole."""
    tensor, data = draw(degrees), draw(st.sampled_from((1, 2, 4)))
    return Layout(
        tensor=tensor,
        pipeline=draw(st.integers(1, 8)),
        attention_data=data,
        expert=draw(st.sampled_from((1, tensor * data))),
    )


@given(models, layouts())
def test_parts_sum_to_the_bytes_of_their_stage(model: ModelSpec, layout: Layout) -> None:
    parts = stage_weight_parts(model, layout, oracle_traits())
    assert stage_weight_bytes(model, layout, oracle_traits()) == tuple(
        part.total_bytes for part in parts
    )


@given(models, st.integers(1, 8))
def test_stages_together_hold_the_model_once_and_a_tied_embedding_twice(
    model: ModelSpec, pipeline: int
) -> None:
    alone = oracle_traits(ends_on_every_stage=frozenset())
    (whole,) = stage_weight_parts(model, Layout(), alone)
    stages = stage_weight_bytes(model, Layout(pipeline=pipeline), alone)
    again = whole.embedding_bytes if model.tied_embeddings and pipeline > 1 else 0
    assert sum(stages) == whole.total_bytes + again


@given(models, layouts())
def test_the_fullest_rank_never_holds_more_with_twice_the_tensor_ranks(
    model: ModelSpec, layout: Layout
) -> None:
    expert = 2 * layout.expert if layout.expert > 1 else 1
    wider = replace(layout, tensor=2 * layout.tensor, expert=expert)
    if shape_problems(model, wider, oracle_traits()):
        return
    before = stage_weight_bytes(model, layout, oracle_traits())
    after = stage_weight_bytes(model, wider, oracle_traits())
    assert all(more <= less for more, less in zip(after, before, strict=True))


@given(models, degrees, st.integers(1, 7))
def test_the_fullest_rank_never_holds_more_with_a_stage_more(
    model: ModelSpec, tensor: int, pipeline: int
) -> None:
    fewer, more = (
        stage_weight_bytes(
            model, Layout(tensor=tensor, pipeline=stages), oracle_traits(remainder=Remainder.FIRST)
        )
        for stages in (pipeline, pipeline + 1)
    )
    (whole,) = stage_weight_parts(model, Layout(tensor=tensor), oracle_traits())
    again = whole.embedding_bytes if model.tied_embeddings else 0
    assert max(more) <= max(fewer) + again


@given(models, layouts())
def test_a_node_never_reads_more_than_the_whole_model(model: ModelSpec, layout: Layout) -> None:
    known = oracle_traits(ends_on_every_stage=frozenset())
    (whole,) = stage_weight_parts(model, Layout(), known)
    again = whole.embedding_bytes if model.tied_embeddings else 0
    assert load_bytes_per_node(model, layout, known, 8) <= whole.total_bytes + again


@given(models, layouts(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_cache_of_a_request_grows_with_its_tokens(
    model: ModelSpec, layout: Layout, few: int, more: int
) -> None:
    cache = kv_cache(model, layout, 0, "auto", oracle_traits())
    assert cache.bytes_for_request(few) <= cache.bytes_for_request(few + more)


@given(models, st.integers(1, 500))
def test_without_windows_whole_blocks_cost_exactly_their_tokens(
    model: ModelSpec, blocks: int
) -> None:
    cache = kv_cache(model, Layout(), 0, "auto", oracle_traits())
    if cache.windows == (None,):
        assert cache.bytes_for_request(16 * blocks) == 16 * blocks * cache.bytes_per_token


@given(models, st.integers(0, 2**38), st.integers(1, 100_000))
def test_the_tokens_that_fit_really_fit(
    model: ModelSpec, kv_bytes: int, request_tokens: int
) -> None:
    cache = kv_cache(model, Layout(), 0, "auto", oracle_traits())
    requests = int(cache.requests(kv_bytes, request_tokens))
    assert (requests + 1) * cache.bytes_for_request(
        request_tokens
    ) > kv_bytes - 2 * cache.bytes_per_block
    assert requests * cache.bytes_for_request(request_tokens) <= kv_bytes


@given(models, st.sampled_from((1, 2, 4, 8, 16, 32)))
def test_bytes_per_token_are_flat_once_ranks_outnumber_kv_heads(
    model: ModelSpec, tensor: int
) -> None:
    attention = model.layers[0].attention
    heads = attention.kv_heads if isinstance(attention, GroupedAttention) else 1
    shared = min(tensor, heads)
    at_tensor, alone = (
        kv_bytes_per_token(model, Layout(tensor=t), 0, "auto", oracle_traits()) for t in (tensor, 1)
    )
    assert at_tensor * shared == alone


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from(Remainder))
def test_stages_take_all_layers_in_order_and_differ_by_one(
    layers: int, pipeline: int, remainder: Remainder
) -> None:
    stages = split_layers(layers, pipeline, remainder)
    sizes = [end - first for first, end in stages]
    assert [index for first, end in stages for index in range(first, end)] == list(range(layers))
    assert len(stages) == pipeline
    assert max(sizes) - min(sizes) <= 1
