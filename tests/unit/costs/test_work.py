"""What a rank has to do per token: heads and values of each kind of attention, products of dense
and expert weights.
"""

from dataclasses import replace

import pytest

from shardwright.costs.weight_bytes import stage_weight_parts
from shardwright.costs.work import SELECTION_KERNELS, AttentionWork, ModelWork, StageWork
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import LatentAttention, ModelSpec, RecurrentAttention
from tests.support.builders_model import a_moe, a_small_model, catalogued, oracle_traits
from tests.support.builders_plan import a_model as a_known_model


def _work(model: ModelSpec, layout: Layout | None = None, *, last: bool = True) -> StageWork:
    layout = layout or Layout()
    held = stage_weight_parts(model, layout, oracle_traits())[0]
    return ModelWork.of(model).stage(layout, (0, len(model.layers)), held, last=last)


def _attention(model: ModelSpec, layout: Layout | None = None) -> AttentionWork:
    (work,) = _work(model, layout).attention
    return work


@pytest.mark.parametrize(
    ("layout", "heads"),
    [
        (Layout(), 4),
        (Layout(tensor=2), 2),
        (Layout(tensor=8), 1),
        (Layout(tensor=8, context=2), 0.5),
    ],
)
def test_a_rank_reads_whole_k_v_heads_unless_ranks_share_them(layout: Layout, heads: float) -> None:
    """8 layers of 4 K/V heads, 64 wide."""
    assert _attention(a_small_model(), layout).kv_values == 8 * heads * (64 + 64)


def test_scores_take_a_product_and_a_sum_per_value_of_keys_and_of_values() -> None:
    work = _attention(a_small_model(), Layout(tensor=2))

    assert work.decode_flops == work.prefill_flops == 8 * 2 * (8 / 2) * (64 + 64)


def test_latent_attention_decodes_on_the_latent_vector_and_computes_prompts_on_its_heads() -> None:
    model = catalogued("deepseek-ai/DeepSeek-V3")
    kind, layers = model.layers[0].attention, len(model.layers)
    assert isinstance(kind, LatentAttention)
    work = _attention(model, Layout(tensor=8))

    assert work.kv_values == layers * (512 + 64)
    assert work.decode_flops == layers * 2 * 128 / 8 * (2 * 512 + 64)
    assert work.prefill_flops == layers * 2 * 128 / 8 * (128 + 64 + 128)


def test_a_recurrent_state_is_read_and_written_and_divided_by_the_tensor_ranks() -> None:
    model = catalogued("Qwen/Qwen3.5-27B")
    kind = model.layers[0].attention
    assert isinstance(kind, RecurrentAttention)
    layers = sum(layer.attention == kind for layer in model.layers)

    states = [
        work.state_bytes for work in _work(model, Layout(tensor=4)).attention if work.state_bytes
    ]
    assert states == [layers * kind.state_elements * 4 * 2 / 4]


@pytest.mark.parametrize("tied", [True, False])
def test_only_the_last_stage_multiplies_with_the_head_be_it_tied_or_not(
    tied: bool,  # noqa: FBT001
) -> None:
    model = a_small_model(tie_word_embeddings=tied)

    assert _work(model, Layout(tensor=2)).head_flops == 2 * 4096 * 512 / 2
    assert _work(model, Layout(tensor=2), last=False).head_flops == 0


def test_dense_products_are_divided_by_the_tensor_ranks() -> None:
    """8 layers: queries and output of 512 x 512, keys and values of 256 x 512, three matrices of
    1,024 x 512.
    """
    elements = 8 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512)

    assert dict(_work(a_small_model(), Layout(tensor=4)).matmul_flops) == {"bf16": 2 * elements / 4}


@pytest.mark.parametrize(
    ("layout", "slices", "experts"), [(Layout(tensor=4), 4, 16), (Layout(tensor=4, expert=4), 1, 4)]
)
def test_a_rank_has_a_slice_of_every_expert_or_whole_ones(
    layout: Layout, slices: int, experts: int
) -> None:
    work = _work(a_moe(), layout)

    assert dict(work.expert_flops) == {"bf16": 8 * 2 * 3 * 256 * 512 / slices}
    assert (work.experts, work.expert_columns, work.expert_layers) == (experts, 256 / slices, 8)


def test_a_layer_counts_one_matrix_product_for_each_of_its_matrices() -> None:
    """Llama: query, key, value, output, gate, up, down. DeepSeek has two more before its K/V, a
    router and shared experts.
    """
    llama, deepseek = (ModelWork.of(a_known_model(name)) for name in ("llama-8b", "deepseek-v3"))

    assert llama.products[-1] == 32 * 7
    assert deepseek.products[-1] == 3 * 8 + 58 * 12


def test_a_layer_that_selects_tokens_starts_the_kernels_of_its_choice_beside_its_matrices() -> None:
    whole = a_known_model("deepseek-v3")
    selecting = replace(
        whole,
        layers=tuple(
            replace(layer, attention=replace(layer.attention, selected_tokens=2048))
            if isinstance(layer.attention, LatentAttention)
            else layer
            for layer in whole.layers
        ),
    )

    started = [ModelWork.of(model).products[-1] for model in (whole, selecting)]
    assert started[1] - started[0] == 61 * SELECTION_KERNELS


@pytest.mark.parametrize(
    ("name", "sort"),
    [("llama-8b", "full"), ("deepseek-v3", "latent, experts"), ("qwen3-30b-a3b", "full, experts")],
)
def test_models_are_of_one_sort_by_what_attention_reads_and_by_having_experts(
    name: str, sort: str
) -> None:
    assert ModelWork.of(a_known_model(name)).sort == sort
