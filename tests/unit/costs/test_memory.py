"""Memory: parts add up, peaks are what engines print, batch limits are lowered before a layout is
refused.
"""

import math
from dataclasses import replace

import pytest

from shardwright.costs.estimates import StageMemory
from shardwright.costs.kvcache import EXTRA_BATCHES, CacheFormat, cache_groups
from shardwright.costs.memory import Frame, ReplicaMemory, memory_at, stage_holds
from shardwright.costs.working_memory import (
    LOADING_RESIDUE,
    Device,
    activation_bytes,
    stage_widened_bytes,
)
from shardwright.costs.workload import Limits, Workload, requests_per_replica
from shardwright.engines.vllm.traits import traits
from shardwright.hardware.gpus import load_gpus
from shardwright.layouts.layout import EngineOverrides, Layout
from shardwright.modelspec.model_spec import LatentAttention, ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.units import GIB
from tests.support.builders_model import catalogued
from tests.support.builders_plan import CONFIGS, a_model, vllm_traits
from tests.support.held_memory import longest_memory, replica_memory

DEFAULTS = Limits(batched_tokens=8192, sequences=1024, model_len=4096)
LOAD = Workload(input_tokens=2048, output_tokens=512, concurrency=64, max_model_len=3072)


def _memory(
    model: str,
    layout: Layout,
    gpu: str,
    load: Workload = LOAD,
    *,
    kv_cache_bytes: int | None = None,
) -> ReplicaMemory:
    spec, row, traits = (
        a_model(model),
        load_gpus()[gpu],
        vllm_traits(kv_cache_bytes=kv_cache_bytes),
    )
    device = Device(gpu=row, joined_gpus=row.scale_up_gpus)
    return replica_memory(spec, layout, device, load, traits)


@pytest.mark.parametrize(
    ("vocabulary", "published_gib"),
    [(128256, 1.9), (151936, 2.2), (262144, 3.9), (49155, 0.85)],
    ids=["llama", "qwen", "gemma-3", "granite"],
)
def test_sampling_peaks_where_engines_print_it(vocabulary: int, published_gib: float) -> None:
    """vLLM 0.19, 1,024 sequences; source: llm-d-planner accuracy report. Granite's peak is its
    forward pass.
    """
    model: ModelSpec = replace(a_model(), vocabulary=vocabulary, config_hash=str(vocabulary))

    predicted = activation_bytes(model, Layout(), DEFAULTS, 4.0, last=True)

    assert predicted / GIB == pytest.approx(published_gib, rel=0.10)


def test_stages_before_the_last_do_not_sample() -> None:
    middle, last = (
        activation_bytes(a_model(), Layout(pipeline=2), DEFAULTS, 4.0, last=last)
        for last in (False, True)
    )

    assert middle < last


def test_every_residual_stream_takes_rows_of_its_own() -> None:
    one = a_model()
    four = replace(one, residual_streams=4, config_hash="four")
    passes = [
        activation_bytes(model, Layout(pipeline=2), DEFAULTS, 4.0, last=False)
        for model in (one, four)
    ]

    assert passes[1] - passes[0] == 3 * 8192 * 2 * 3.5 * one.hidden_size


def test_the_widest_result_of_a_layer_is_divided_by_the_tensor_ranks() -> None:
    """Llama-8B: gate and up of 14,336 values each, and half of them again after gating."""
    one, two = (
        activation_bytes(a_model(), Layout(tensor=n), DEFAULTS, 4.0, last=False) for n in (1, 2)
    )

    assert one - two == 8192 * 2 * 1.5 * 2 * 14_336 / 2


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_windows_keep_the_tokens_of_every_batch_in_flight(stages: int) -> None:
    """One batch for every stage and the extra ones beside the window of 512, in whole blocks and
    one more.
    """
    mistral = read_model(
        {**CONFIGS["llama-8b"], "architectures": ["MistralForCausalLM"], "sliding_window": 512},
        source="a test",
    )
    layout, row = Layout(pipeline=stages), load_gpus()["H100-SXM-80GB"]
    load = replace(
        LOAD, input_tokens=100_000, output_tokens=4_000, concurrency=1, max_model_len=110_000
    )
    held = replica_memory(mistral, layout, Device(gpu=row, joined_gpus=8), load, vllm_traits())

    kept = (math.ceil((511 + held.limits.batched_tokens * (stages + EXTRA_BATCHES)) / 16) + 1) * 16
    assert {stage.request_bytes // stage.kv_bytes_per_token for stage in held.stages} == {kept}


def test_buffers_of_experts_stay_beside_sampling() -> None:
    """vLLM 0.19, Qwen3-30B-A3B: 2.7 GiB beside 2.2 of dense models of this vocabulary
    (llm-d-planner accuracy report).
    """
    predicted = activation_bytes(a_model("qwen3-30b-a3b"), Layout(), DEFAULTS, 4.0, last=True)

    assert predicted / GIB == pytest.approx(2.7, rel=0.10)


def test_the_parts_of_every_stage_add_up_to_the_budget() -> None:
    memory = _memory("llama-405b", Layout(tensor=8, pipeline=2), "H100-SXM-80GB")

    for stage in memory.stages:
        parts = (
            stage.weights_bytes
            + stage.activations_bytes
            + stage.overhead_bytes
            + stage.kv_cache_bytes
        )
        assert parts == stage.budget_bytes == -(-(81559 - 480) * 2**20 * 92 // 100)


def test_the_worst_stage_sets_the_tokens_of_the_replica() -> None:
    memory = _memory("llama-405b", Layout(tensor=8, pipeline=2), "H100-SXM-80GB")

    assert memory.kv_tokens == min(
        (stage.kv_cache_bytes // (16 * stage.kv_bytes_per_token) - 1) * 16
        for stage in memory.stages
    )


def _buffers(gpu: str) -> int:
    """Return the overhead that a second tensor rank brings, what loading leaves behind apart."""
    alone, pair = (_memory("llama-8b", Layout(tensor=ranks), gpu).stages[0] for ranks in (1, 2))
    residue = [math.ceil(LOADING_RESIDUE * stage.weights_bytes) for stage in (alone, pair)]
    return pair.overhead_bytes - residue[1] - alone.overhead_bytes + residue[0]


def test_buffers_for_tensor_ranks_are_counted_only_where_there_are_some() -> None:
    assert _buffers("H100-SXM-80GB") == vllm_traits().memory.communication_overhead_bytes


def test_ranks_joined_by_pcie_need_smaller_buffers_than_ranks_on_a_switch() -> None:
    assert _buffers("L40S-48GB") == vllm_traits().memory.host_communication_overhead_bytes


def test_batches_shrink_until_the_load_is_carried() -> None:
    load = Workload(input_tokens=4096, output_tokens=1024, concurrency=7, max_model_len=5120)
    memory = _memory("llama-8b", Layout(), "L4-24GB", load)

    assert memory.limits == Limits(batched_tokens=1024, sequences=64, model_len=5120)
    assert memory.running(7) == 7


SHORT = Workload(input_tokens=200, output_tokens=56, concurrency=1, max_model_len=256)


def _lengthened(
    model: ModelSpec, gpu: str, load: Workload, version: str = "0.33.0"
) -> tuple[ReplicaMemory, ReplicaMemory]:
    """Return the memory at the length that a load needs, and at the one that it takes."""
    row = load_gpus()[gpu]
    device = Device(gpu=row, joined_gpus=row.scale_up_gpus)
    found, longer = (
        held(model, Layout(), device, load, traits(version))
        for held in (replica_memory, longest_memory)
    )
    return found, longer


def test_a_longest_request_that_nobody_asked_for_is_as_long_as_k_v_surely_holds() -> None:
    _, longer = _lengthened(a_model(), "L4-24GB", replace(SHORT, open_model_len=131072))

    (stage,), (more,) = longer.stages, _at(longer, longer.limits.model_len + 1024)
    assert longer.limits.model_len % 1024 == 0
    assert 256 < longer.limits.model_len < 131072
    assert stage.kv_cache_bytes - stage.band_bytes >= stage.request_bytes
    assert more.tight


def _at(memory: ReplicaMemory, length: int) -> tuple[StageMemory, ...]:
    """Return what Llama 8B on an L4 holds at another length."""
    _, other = _lengthened(
        a_model(), "L4-24GB", replace(SHORT, input_tokens=length - 56, max_model_len=length)
    )
    assert other.limits == replace(memory.limits, model_len=length)
    return other.stages


def test_the_longest_request_ends_at_the_model_even_between_two_steps() -> None:
    _, longer = _lengthened(a_model(), "H100-SXM-80GB", replace(SHORT, open_model_len=100_000))

    assert longer.limits.model_len == 100_000


def test_a_longest_request_that_somebody_asked_for_stays() -> None:
    found, longer = _lengthened(a_model(), "H100-SXM-80GB", SHORT)

    assert longer == found


def test_what_is_tight_is_not_made_tighter() -> None:
    gpu = "L4-24GB"
    most = _lengthened(a_model(), gpu, replace(SHORT, open_model_len=131072))[1].limits.model_len
    near = replace(SHORT, input_tokens=most + 1024, max_model_len=most + 1080)

    found, longer = _lengthened(a_model(), gpu, replace(near, open_model_len=131072))

    assert found.tight
    assert longer == found


def test_buffers_for_the_longest_request_leave_room_for_every_request_of_the_load() -> None:
    """Attention that selects reserves 5,760 bytes for each token of the longest request, so the
    last request of the load keeps it short.
    """
    model = _selecting()
    load = replace(LOAD, max_model_len=2560, open_model_len=131072, concurrency=4096)
    found, longer = _lengthened(model, "H200-SXM-141GB", load)
    free, widest = _lengthened(model, "H200-SXM-141GB", replace(load, concurrency=1))

    assert found.running(4096) == longer.running(4096) < 4096
    assert longer.limits.model_len < widest.limits.model_len == 131072
    assert (
        widest.stages[0].activations_bytes - free.stages[0].activations_bytes
        == (131072 - 2560) * 5 * 576 * 2
    )


def _selecting() -> ModelSpec:
    model = catalogued("deepseek-ai/DeepSeek-V2-Lite")
    selecting = tuple(
        replace(layer, attention=replace(layer.attention, selected_tokens=2048, index_dim=128))
        for layer in model.layers
        if isinstance(layer.attention, LatentAttention)
    )
    return replace(model, layers=selecting, config_hash="selecting")


@pytest.mark.parametrize(("needed", "longest"), [(256, 2048), (20_000, 20_000), (40_000, 98_304)])
def test_an_engine_that_takes_prompts_whole_takes_none_longer_than_its_batch(
    needed: int, longest: int
) -> None:
    load = replace(SHORT, input_tokens=needed - 56, max_model_len=needed, open_model_len=98_304)

    _, longer = _lengthened(a_model(), "A100-SXM4-80GB", load, "0.6.3")

    assert longer.limits.model_len == longest


def test_a_request_that_fits_by_less_than_the_band_is_tight() -> None:
    (stage,) = _memory("llama-8b", Layout(), "L4-24GB").stages
    band, free = stage.band_bytes, stage.kv_cache_bytes

    assert not stage.tight
    assert replace(stage, request_bytes=free - band + 1).tight
    assert not replace(stage, request_bytes=free - band).tight
    assert not replace(stage, request_bytes=free + 1).tight  # that does not fit at all


def test_a_length_that_was_asked_for_is_never_lowered() -> None:
    load = Workload(input_tokens=2048, output_tokens=512, concurrency=1, max_model_len=131072)
    memory = _memory("llama-8b", Layout(), "L4-24GB", load)

    assert not memory.starts
    assert memory.limits == Limits(batched_tokens=1024, sequences=16, model_len=131072)


def test_what_never_starts_is_shown_at_its_smallest() -> None:
    memory = _memory("llama-70b", Layout(), "H100-SXM-80GB")

    assert not memory.starts
    assert memory.limits == Limits(batched_tokens=1024, sequences=16, model_len=3072)


def test_more_requests_than_the_engine_s_default_raise_the_limit() -> None:
    load = replace(LOAD, input_tokens=64, output_tokens=64, concurrency=3000, max_model_len=1024)

    assert _memory("llama-8b", Layout(), "H200-SXM-141GB", load).limits.sequences == 4096


def test_replicas_share_the_requests() -> None:
    assert requests_per_replica(replace(LOAD, concurrency=65), Layout(replicas=4)) == 17


def test_a_requested_k_v_cache_is_what_every_rank_keeps_without_a_band() -> None:
    memory = _memory("llama-8b", Layout(pipeline=2), "H100-SXM-80GB", kv_cache_bytes=8 * GIB)

    assert [(stage.kv_cache_bytes, stage.band_bytes) for stage in memory.stages] == [
        (8 * GIB, 0)
    ] * 2
    for stage in memory.stages:
        assert (
            stage.weights_bytes + stage.activations_bytes + stage.overhead_bytes + 8 * GIB
            == stage.budget_bytes
        )
    assert memory.kv_tokens == (8 * GIB // (16 * memory.stages[0].kv_bytes_per_token) - 1) * 16


def test_a_k_v_cache_that_may_not_fit_beside_the_rest_is_missing_what_its_band_could_take() -> None:
    device, layout = Device(gpu=load_gpus()["H100-SXM-80GB"], joined_gpus=8), Layout()

    def stage(kv_cache_bytes: int | None) -> StageMemory:
        traits = vllm_traits(kv_cache_bytes=kv_cache_bytes)
        holds = stage_holds(a_model(), layout, "auto", traits)
        frame = Frame(
            model=a_model(),
            layout=layout,
            holds=holds,
            device=device,
            traits=traits,
            mean_tokens=2560,
        )
        return memory_at(frame, DEFAULTS).stages[0]

    free = stage(None)
    rest = free.weights_bytes + free.activations_bytes + free.overhead_bytes
    room = device.usable_bytes - rest - free.band_bytes

    fits, short = stage(room), stage(room + 1)

    assert (fits.kv_cache_bytes, fits.budget_bytes) == (room, rest + room)
    assert (short.kv_cache_bytes, rest - short.budget_bytes) == (-1, 1)


HYBRID = "Qwen/Qwen3.5-27B"
EIGHT = replace(LOAD, concurrency=8, max_model_len=131_072)


def _hybrid(gpu: str = "H100-SXM-80GB", *, told: EngineOverrides | None = None) -> ReplicaMemory:
    row, traits = load_gpus()[gpu], vllm_traits(**({"told": told} if told else {}))
    device = Device(gpu=row, joined_gpus=row.scale_up_gpus)
    return replica_memory(catalogued(HYBRID), Layout(), device, EIGHT, traits)


@pytest.mark.parametrize(
    ("bits", "block_tokens"),
    # vLLM logs "attention block size to 784 tokens", and 1568 with an FP8 cache.
    [(16, 784), (8, 1568)],
)
def test_blocks_of_a_hybrid_are_as_long_as_public_logs_say(bits: int, block_tokens: int) -> None:
    form = CacheFormat(bits=bits, model_bits=16, block_tokens=16)

    groups = cache_groups(catalogued(HYBRID), 1, form)

    assert {group.block_tokens for group in groups} == {block_tokens}


@pytest.mark.parametrize("gpu", ["H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB"])
def test_no_more_sequences_run_than_states_surely_have_blocks(gpu: str) -> None:
    memory = _hybrid(gpu)
    (stage,) = memory.stages
    block = 16 * 784 * 4 * (256 + 256) * 2  # a page of each of 16 layers with attention

    surely = (stage.kv_cache_bytes - stage.band_bytes) // block

    assert memory.starts
    assert not memory.tight
    assert memory.sequences == (stage.kv_cache_bytes // block, surely)
    assert memory.limits.sequences == min(1024, 2 ** int(math.log2(surely)))
    assert memory.limits.batched_tokens >= 8192


def test_as_many_sequences_as_told_do_not_start_beyond_the_blocks() -> None:
    memory = _hybrid(told=EngineOverrides(sequences=1024))

    assert memory.limits.sequences == 1024
    assert memory.holds_longest
    assert not memory.starts


def test_without_graphs_and_without_states_blocks_limit_no_sequences() -> None:
    assert _hybrid(told=EngineOverrides(captured=())).limits.sequences == 1024
    assert _memory("llama-8b", Layout(), "H100-SXM-80GB").sequences is None


def test_scales_of_fp8_blocks_grow_where_kernels_widen_them() -> None:
    model, layout = a_model("llama-70b-fp8"), Layout(tensor=4)
    (widened,) = stage_widened_bytes(model, layout, vllm_traits())
    # q, k, v, o, gate, up and down of each layer: two bytes for every output and 128 inputs, in
    # place of four for 128 of both.
    inputs_and_outputs = 8192 * (2048 + 256 + 256 + 7168 + 7168) + 2048 * 8192 + 7168 * 8192
    elements = 80 * inputs_and_outputs

    assert widened == elements // 128 * 2 - elements // 128**2 * 4
    assert stage_widened_bytes(a_model("llama-70b"), layout, vllm_traits()) == (0,)

    a100, h100 = (
        _memory("llama-70b-fp8", layout, gpu).stages[0].overhead_bytes
        for gpu in ("A100-SXM4-80GB", "H100-SXM-80GB")
    )
    assert a100 - h100 == pytest.approx(widened, abs=80 * 2**20)  # other batches, other graphs


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "L40S-48GB", "H100-SXM-80GB"])
def test_a_batch_holds_the_longest_video_of_a_model_that_must_not_cut_it(gpu: str) -> None:
    row = load_gpus()[gpu]
    device = Device(gpu=row, joined_gpus=row.scale_up_gpus)
    model, layout = catalogued("google/gemma-4-31B-it"), Layout(tensor=2)

    memory = replica_memory(model, layout, device, replace(LOAD, concurrency=512), vllm_traits())

    # 32 frames of 70 tokens and 8 around them: vLLM starts with no smaller batch.
    assert memory.limits.batched_tokens >= 32 * 78
