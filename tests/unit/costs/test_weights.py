"""Bytes of weights: equal to what vLLM's own classes create, and cut the way the layout says."""

from shardwright.costs.weight_bytes import load_bytes_per_node, stage_weight_parts
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import PipelineRole
from shardwright.modelspec.quantized import apply_quantization
from tests.support.builders_model import a_moe, a_small_model, catalogued, oracle_traits
from tests.support.held_memory import stage_weight_bytes
from tests.support.oracle import STRICTER_THAN_VLLM, OracleCase, oracle_cases

ACCEPTED = [
    case for case in oracle_cases() if case.accepted and case.name not in STRICTER_THAN_VLLM
]


def _uncounted(case: OracleCase) -> float:
    """Return the share that we leave out of quantized weights, and nothing of others.

    Scales of the K/V cache and shapes beside packed weights are a few bytes a layer; for GPTQ
    experts vLLM makes biases of zeros; a vision tower is counted to a few percent of itself, and
    not at all where the config states none (Llama 4: vLLM builds the default one).
    """
    model = case.model
    if model.warnings or any(weight.part is PipelineRole.TOWER for weight in model.weights):
        return 0.015 if model.warnings else 0.006
    if model.quantization in (None, "mxfp4"):
        return 0.0
    return (
        0.005
        if model.quantization == "gptq" and model.experts
        else SCALES.get(model.architecture, 3e-6)
    )


SCALES = {"DeepseekV4ForCausalLM": 1e-4, "MiniMaxM2ForCausalLM": 1e-5}
"""Of each architecture, the share of scales that we count otherwise: V4's are 8 bits wide and
counted as 32.
"""


def test_every_stage_holds_the_bytes_that_vllm_creates() -> None:
    wrong = {
        case.name: (ours, theirs)
        for case in ACCEPTED
        if not _within(
            _uncounted(case),
            ours := stage_weight_bytes(case.model, case.layout, oracle_traits()),
            theirs := tuple(weights for weights, _ in case.stages),
        )
    }

    assert wrong == {}


def _within(share: float, ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    return len(ours) == len(theirs) and all(
        real * (1 - share) <= mine <= real * (1 + share)
        for mine, real in zip(ours, theirs, strict=True)
    )


def test_one_gpu_holds_every_parameter_once() -> None:
    model = catalogued("meta-llama/Llama-3.1-8B-Instruct")
    assert stage_weight_bytes(model, Layout(), oracle_traits()) == (2 * 8_030_261_248,)


def test_parts_are_told_apart() -> None:
    embedding = head = 4096 * 512 * 2
    attention = 8 * 2 * (2 * 512 * 512 + 2 * 256 * 512 + 512)
    feed_forward = 8 * 2 * (3 * 512 * 1024 + 512)
    (stage,) = stage_weight_parts(a_small_model(), Layout(), oracle_traits())
    assert stage.embedding_bytes == embedding
    assert stage.attention_bytes == attention
    assert stage.feed_forward_bytes == feed_forward
    assert stage.expert_bytes == 0
    assert stage.head_bytes == head + 512 * 2


def test_tied_embeddings_stand_on_both_ends_of_a_pipeline() -> None:
    tied = stage_weight_parts(
        a_small_model(tie_word_embeddings=True), Layout(pipeline=3), oracle_traits()
    )
    assert [stage.embedding_bytes for stage in tied] == [4096 * 512 * 2, 0, 4096 * 512 * 2]


def test_tied_embeddings_stand_once_on_one_stage() -> None:
    (stage,) = stage_weight_parts(
        a_small_model(tie_word_embeddings=True), Layout(), oracle_traits()
    )
    assert stage.embedding_bytes == 4096 * 512 * 2


def test_the_vocabulary_is_padded_before_it_is_cut() -> None:
    odd = stage_weight_parts(a_small_model(vocab_size=4097), Layout(tensor=4), oracle_traits())
    assert odd[0].embedding_bytes == 4160 // 4 * 512 * 2


def test_kv_projections_are_repeated_where_there_are_more_ranks_than_kv_heads() -> None:
    at_4, at_8 = (
        stage_weight_parts(a_small_model(), Layout(tensor=t), oracle_traits())[0].attention_bytes
        for t in (4, 8)
    )
    one_head_of_keys_and_values = 8 * 2 * (2 * 64 * 512)
    queries_and_output = 8 * 2 * (2 * 512 * 512)
    norms = 8 * 2 * 512
    assert at_4 == queries_and_output // 4 + one_head_of_keys_and_values + norms
    assert at_8 == queries_and_output // 8 + one_head_of_keys_and_values + norms


def test_the_fullest_rank_has_one_expert_more_where_they_do_not_divide() -> None:
    model = a_moe(num_experts=10)
    one_expert = 8 * 3 * 512 * 256 * 2
    stage = stage_weight_parts(model, Layout(tensor=4, expert=4), oracle_traits())[0]
    assert stage.expert_bytes == 3 * one_expert


def test_experts_in_sliced_sets_hold_as_much_as_experts_sliced_or_dealt_over_all_ranks() -> None:
    model = a_moe()
    held = [
        stage_weight_parts(model, Layout(tensor=8, expert=expert), oracle_traits())[0].expert_bytes
        for expert in (1, 2, 4, 8)
    ]
    assert len(set(held)) == 1


def test_attention_data_repeats_attention_and_slices_experts() -> None:
    model = a_moe()
    alone = stage_weight_parts(model, Layout(), oracle_traits())[0]
    spread = stage_weight_parts(model, Layout(attention_data=4), oracle_traits())[0]
    assert spread.attention_bytes == alone.attention_bytes
    assert spread.expert_bytes * 4 == alone.expert_bytes


def test_fp8_at_load_time_halves_linear_layers_and_leaves_the_ends() -> None:
    model = a_small_model()
    stored = stage_weight_parts(model, Layout(), oracle_traits())[0]
    loaded = stage_weight_parts(apply_quantization(model, "FP8"), Layout(), oracle_traits())[0]
    scales = 8 * 3 * 4
    assert loaded.feed_forward_bytes == 8 * (3 * 512 * 1024 + 512 * 2) + scales
    assert loaded.embedding_bytes == stored.embedding_bytes
    assert loaded.head_bytes == stored.head_bytes


def test_a_node_reads_each_stage_that_it_holds_once_and_whole() -> None:
    model, traits = a_small_model(), oracle_traits()
    whole = stage_weight_bytes(model, Layout(), traits)[0]
    stages = stage_weight_bytes(model, Layout(pipeline=2), traits)
    assert load_bytes_per_node(model, Layout(tensor=4), traits, 4) == whole
    assert load_bytes_per_node(model, Layout(tensor=4), traits, 2) == whole
    assert load_bytes_per_node(model, Layout(tensor=4, pipeline=2), traits, 4) == max(stages)
    assert load_bytes_per_node(model, Layout(tensor=2, pipeline=2), traits, 4) == sum(stages)
    assert load_bytes_per_node(
        model, Layout(tensor=2, pipeline=2, attention_data=2), traits, 4
    ) == sum(stages)
