"""vLLM's traits for the planner, each figure with its source.

How vLLM budgets memory, in three eras cut by release date.

An era is found by a version's release, or by a month in it (``V1 2025-04``), else the newest
counts. Figures without a source are fitted to the rows of ``docs/memory.md``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any, Final

from shardwright.layouts.layout import (
    AttentionBackends,
    AttentionKind,
    AttentionNeed,
    BatchDefault,
    BatchRules,
    CutRules,
    EngineSupport,
    EngineTraits,
    MemoryRules,
    PromptSharing,
    Remainder,
    Repeats,
)
from shardwright.units import GIB, KIB, MIB

_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)(?:\D|$)")
_MONTH: Final = re.compile(r"(20\d\d)-(\d\d)")

LARGE_BATCH: Final = BatchDefault(
    gpu_bytes=70 * GIB, compute_capability=(8, 9), tokens=8192, sequences=1024
)
HUGE_BATCH: Final = BatchDefault(
    gpu_bytes=160 * GIB, compute_capability=(0, 0), tokens=16384, sequences=1024
)
"""Batches that vLLM takes by itself on GPUs with much memory. The first leaves out compute
capability 8.0, where vLLM names the GPU. Source: vLLM 0.32
``engine/arg_utils.py:get_batch_defaults``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Era:
    """One way to budget memory, from a release and month on.

    The other fields are those of :class:`~shardwright.layouts.layout.EngineTraits`.
    """

    release: tuple[int, int]
    month: tuple[int, int]
    memory_utilization: float
    logit_copies: float
    counts_graphs: bool
    chunks_prompts: bool
    batch_defaults: tuple[BatchDefault, ...]


ERAS: Final = (
    # no chunked prefill; sampling sorts the vocabulary (llama: 1.26 GiB at 256 sequences, mem-001)
    Era(
        release=(0, 0),
        month=(2023, 6),
        memory_utilization=0.9,
        logit_copies=10.0,
        counts_graphs=False,
        chunks_prompts=False,
        batch_defaults=(),
    ),
    Era(  # the V1 engine: named so from January 2025 on, the default since 0.8.0 (March)
        release=(0, 8),
        month=(2025, 1),
        memory_utilization=0.9,
        logit_copies=4.0,
        counts_graphs=False,
        chunks_prompts=True,
        batch_defaults=(LARGE_BATCH,),
    ),
    # graphs are estimated and taken from the budget (0.21; the month lies between 0.18 and 0.25)
    Era(
        release=(0, 21),
        month=(2026, 5),
        memory_utilization=0.92,
        logit_copies=4.0,
        counts_graphs=True,
        chunks_prompts=True,
        batch_defaults=(HUGE_BATCH, LARGE_BATCH),
    ),
)


def era_of(version: str) -> Era:
    """Return the era of a version.

    >>> [era_of(text).release for text in ("0.6.x", "V1 2025-04", "0.33.0", "nightly")]
    [(0, 0), (0, 8), (0, 21), (0, 21)]
    """
    if (release := release_of(version)) is not None:
        return next(era for era in reversed(ERAS) if release >= era.release)
    if found := _MONTH.search(version):
        month = (int(found[1]), int(found[2]))
        return next((era for era in reversed(ERAS) if month >= era.month), ERAS[0])
    return ERAS[-1]


def release_of(version: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version, None if it does not begin with them.

    >>> release_of("0.33.0"), release_of("0.6.x"), release_of("2024 (see paper)")
    ((0, 33), (0, 6), None)
    """
    found = _RELEASE.match(version)
    return (int(found[1]), int(found[2])) if found else None


NAME: Final = "vLLM"

_EXPERTS_AT_LEAST_TENSOR: Final = frozenset(
    {
        "Cohere2MoeForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Step3TextForCausalLM",
    }
)

_ENDS_ON_EVERY_STAGE: Final = frozenset(
    {
        "ChatGLMForConditionalGeneration",
        "ChatGLMModel",
        "CohereForCausalLM",
        "DbrxForCausalLM",
        "FalconForCausalLM",
        "GPTJForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "MixtralForCausalLM",
        "NemotronHForCausalLM",
        "OPTForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)

_EMBEDDING_ON_EVERY_STAGE: Final = frozenset(
    {
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    }
)

_REPEATS_DENSE_LAYERS: Final = frozenset({"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"})

_REPEATS_SHARED_EXPERTS: Final = _REPEATS_DENSE_LAYERS | {
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV4ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "Llama4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "NemotronHForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
}

_EXPERTS_ON_EVERY_STAGE: Final = frozenset(
    {
        "Glm4MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    }
)

_PADS_SHARED_EXPERTS: Final = frozenset({"DeepseekV4ForCausalLM"})

_REPEATS: Final = Repeats(
    ends_on_every_stage=_ENDS_ON_EVERY_STAGE,
    embedding_on_every_stage=_EMBEDDING_ON_EVERY_STAGE,
    repeats_shared_experts=_REPEATS_SHARED_EXPERTS,
    repeats_dense_layers=_REPEATS_DENSE_LAYERS,
    pads_shared_experts=_PADS_SHARED_EXPERTS,
)

_QUANTIZATIONS: Final = frozenset(
    {
        "awq",
        "compressed-tensors",
        "fp8",
        "gptq",
        "inc",
        "modelopt",
        "modelopt_fp4",
        "mxfp4",
        "quark",
        "torchao",
    }
)

_WIDTH_DIVIDES_REPLICA: Final = frozenset({"GptOssForCausalLM"})

_BECOMES_PREDICTOR: Final = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm5NextForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "KimiK3ForConditionalGeneration",
        "MiMoV2FlashForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "NemotronHForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7FlashForCausalLM",
    }
)

_TAKES_EAGLE3: Final = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "GptOssForCausalLM",
        "KimiK25ForConditionalGeneration",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MistralForCausalLM",
        "NemotronHForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    }
)

_SOURCES: Final[Mapping[str, str]] = {
    "remainder": (
        "vLLM 0.32.0 source, distributed/utils.py:get_pp_indices "
        "(126 layers over 4: 31, 32, 32, 31)"
    ),
    "vocabulary_padding": (
        "vLLM 0.32.0 source, layers/vocab_parallel_embedding.py: rounded up to 64"
    ),
    "memory_utilization": (
        "option default --gpu-memory-utilization: 0.92 in vLLM 0.32.0 and 0.33.0, 0.9 in older ones"
    ),
    "kv_block_tokens": (
        "vLLM 0.32.0 source, v1/kv_cache_interface.py: 16 on NVIDIA (some kernels force 64)"
    ),
    "max_batched_tokens": (
        "vLLM 0.32.0 source, engine/arg_utils.py:get_batch_defaults, GPUs of less than 70 GiB"
    ),
    "max_sequences": (
        "vLLM 0.32.0 source, engine/arg_utils.py:get_batch_defaults, GPUs of less than 70 GiB"
    ),
    "batch_defaults": "the same for GPUs of 70 GiB and more, and of 160 GiB and more",
    "fixed_overhead_bytes": "fitted, docs/memory.md: 0.02 to 0.35 GiB on one GPU",
    "communication_overhead_bytes": (
        "measured, vLLM 0.19 on H100: 2.1 GiB of non-torch memory with tensor ranks, 0.27 without"
        " (llm-d-planner docs/accuracy/vllm-v0.19.0-accuracy-report.md)"
    ),
    "host_communication_overhead_bytes": (
        "fitted, docs/memory.md: at most 0.5 GiB over PCIe (mem-029, mem-064, mem-071)"
    ),
    "graph_bytes": "fitted, docs/memory.md: 1.22 GiB for 80 layers and 51 batch sizes (mem-064)",
    "logit_copies": "fitted, docs/memory.md",
    "graph_sequences": "vLLM 0.32.0 source, config/vllm.py:_set_cudagraph_sizes: up to 512",
    "counts_graphs": (
        "vLLM 0.32.0 source, v1/worker/gpu_worker.py: taken from the K/V cache since 0.21"
    ),
    "uncut_inputs": (
        "vLLM 0.32.0 and 0.33.0, get_mm_max_tokens_per_item of models that see images both ways"
    ),
    "block_of_every_sequence": (
        "vLLM 0.32.0 and 0.33.0 source, config/compilation.py: max_num_seqs above the blocks raises"
    ),
    "chunks_prompts": (
        "vLLM 0.32.0 source, engine/arg_utils.py: on for generation; the engine before 0.8 "
        "did so above 32768"
    ),
    "kv_cache_bytes": (
        "vLLM 0.32.0 source, config/cache.py: --kv-cache-memory-bytes goes before the "
        "utilization, none by default"
    ),
    "adapters": (
        "vLLM 0.32.0 options --enable-lora, --max-loras and --max-lora-rank, off by default"
    ),
    "takes_adapters": (
        "vLLM 0.32.0 and 0.33.0 model registries, classes with SupportsLoRA: load_lora_model "
        "refuses the others"
    ),
    "adapters_leave_vocabulary": (
        "vLLM 0.32.0 and 0.33.0 model registries, classes without embedding_modules"
    ),
    "adapter_vocabulary": (
        "vLLM 0.32.0 source, lora/layers/logits_processor.py: a larger one is refused"
    ),
    "drafter": "vLLM 0.32.0 option --speculative-config, none by default",
    "becomes_predictor": (
        "vLLM 0.33.0 source, config/speculative.py:hf_config_override, of architectures that "
        "are read here"
    ),
    "predicts_over_stages": (
        "vLLM 0.32.0 and 0.33.0, drafters with SupportsPP that do not state that they lack an "
        "embedding (tests/engine/backends.py)"
    ),
    "takes_eagle3": (
        "vLLM 0.32.0 and 0.33.0 source, classes with SupportsEagle3, of those read here"
    ),
    "architectures": "vLLM 0.32.0 and 0.33.0 model registries, text generation",
    "without_pipeline": "vLLM 0.32.0 and 0.33.0 model registries, classes without SupportsPP",
    "experts_at_least_tensor": (
        "vLLM 0.32.0 source, models/qwen3_moe.py and others: tensor size above experts is refused"
    ),
    "released": "engines/versions.py",
    "mixes_prompts": "vLLM 0.32.0 source, v1/core/sched/scheduler.py: one schedule for both",
    "reserves_output": (
        "vLLM 0.32.0 source, v1/core/sched/scheduler.py: pages are taken as a request grows"
    ),
    "cache_follows_weights": "vLLM 0.32.0 option default --kv-cache-dtype auto: the model's dtype",
    "refuses_long_requests": "vLLM 0.32.0 source, config/model.py:_get_and_verify_max_len",
    "mixes_expert_cuts": (
        "vLLM 0.32.0 source, fused_moe/config.py:FusedMoEParallelConfig.make: all ranks or none"
    ),
    "ends_on_every_stage": (
        "vLLM 0.32.0 model classes, built stage by stage; Gemma 1 to 3 by reading"
    ),
    "embedding_on_every_stage": (
        "vLLM 0.32.0 model classes, built stage by stage; Qwen3-Next by reading"
    ),
    "repeats_shared_experts": (
        "vLLM 0.32.0 model classes, built over 2 tensor "
        "x 4 data ranks; Qwen3-Next and V2 by reading"
    ),
    "repeats_dense_layers": "vLLM 0.32.0 model classes, built over 2 tensor x 4 data ranks",
    "pads_shared_experts": "vLLM 0.32.0 source, models/deepseek_v4/nvidia/model.py:DeepseekV4MLP",
    "experts_on_every_stage": (
        "vLLM 0.32.0 source, models/qwen3_moe.py, glm4_moe.py and others: RuntimeError without one"
    ),
    "refines_blocks": (
        "vLLM 0.32.0 and 0.33.0, methods whose source calls resolve_fp8_moe_weight_block_shape"
    ),
    "quantizations": (
        "vLLM 0.32.0, quantization/__init__.py, of those that are read: bitsandbytes is gone, "
        "fbgemm_fp8 refused"
    ),
    "shares_context": "vLLM 0.32.0 option --decode-context-parallel-size",
    "data_beside_tensor": (
        "vLLM 0.32.0 source, config/parallel.py: world is tensor x pipeline x data"
    ),
    "two_shot_sums": "vLLM 0.32.0 source, csrc/custom_all_reduce.cuh: 1 or 2 stages by size",
    "deals_experts_evenly": (
        "vLLM 0.32.0 source, fused_moe/layer.py:determine_expert_map: the first ranks get one more"
    ),
    "over_ray": "no figure: what spec.engine.executor asks for, not how vLLM runs by itself",
    "least_capability": "docs.vllm.ai, installation on NVIDIA CUDA: 7.0 up to 0.22, 7.5 since",
    "widens_fp8_from": (
        "docs.vllm.ai v0.32.0, quantization/llm_compressor/fp8: weight-only by FP8 Marlin from 7.5"
    ),
    "oldest_for": (
        "vLLM 0.32.0 and 0.33.0 source, quantization/: get_min_capability of methods and "
        "schemes; torchao.py"
    ),
    "prompts": (
        "vLLM 0.32.0 and 0.33.0 source, config/vllm.py: among what Model Runner V1 does not support"
    ),
    "captures": "vLLM 0.32.0 source, config/vllm.py:_set_cudagraph_sizes",
    "cache_of_free": "vLLM 0.32.0 source, v1/worker/utils.py:request_memory: a share of the GPU",
    "looks_up_alone": "vLLM 0.33 source, config/speculative.py: no degree is refused beside it",
    "looks_up": "no figure: what spec.engine.speculation asks for",
    "takes_predictor": "none: of the models whose MTP layers are counted it takes all",
    "backends": (
        "vLLM 0.32.0 and 0.33.0, the selection of attention backends, called in the wheel for "
        "every GPU (tests/engine/backends.py)"
    ),
    "told": (
        "no figure: what engine.args say that the plan counts with, not what vLLM does by itself"
    ),
    "warnings": "none: what is not known of vLLM has a figure or a rule of its own",
    "width_divides_replica": (
        "vLLM 0.32.0 source, models/gpt_oss.py:MLPBlock: expert width over all ranks"
    ),
}


def traits(version: str) -> EngineTraits:
    """Return what planning must know of vLLM ``version`` (``major.minor.patch``).

    The figures were read in 0.32.0; 0.33.0 has the same, and lists of its own. Architectures newer
    than a list need a newer engine, so a version without a list refuses none.
    """
    release, era = release_of(version), era_of(version)
    registry = _data("architectures", release)
    return EngineTraits(
        name=NAME,
        version=version,
        batching=BatchRules(
            max_batched_tokens=2048,
            max_sequences=256,
            batch_defaults=era.batch_defaults,
            chunks_prompts=era.chunks_prompts,
            uncut_inputs=_data("contract", release)["uncut"],
        ),
        memory=MemoryRules(
            vocabulary_padding=64,
            memory_utilization=era.memory_utilization,
            kv_block_tokens=16,
            fixed_overhead_bytes=300 * MIB,
            communication_overhead_bytes=1850 * MIB,
            host_communication_overhead_bytes=500 * MIB,
            graph_bytes=314 * KIB,
            logit_copies=era.logit_copies,
            counts_graphs=era.counts_graphs,
            block_of_every_sequence=True,
        ),
        cuts=_cuts(release, registry),
        repeats=_REPEATS,
        support=_support(release, registry),
        hands_over_kv=True,
        sources=_SOURCES,
    )


def _cuts(release: tuple[int, int] | None, registry: Mapping[str, Any]) -> CutRules:
    return CutRules(
        remainder=Remainder.BEFORE_LAST,
        without_pipeline=frozenset(registry["without_pipeline"]),
        experts_at_least_tensor=_EXPERTS_AT_LEAST_TENSOR,
        experts_on_every_stage=_EXPERTS_ON_EVERY_STAGE,
        width_divides_replica=_WIDTH_DIVIDES_REPLICA,
        prompts=PromptSharing.REFUSED,
        refines_blocks=frozenset(_data("contract", release)["refines"]),
    )


def _support(release: tuple[int, int] | None, registry: Mapping[str, Any]) -> EngineSupport:
    adapters = _data("adapters", release)
    listed = release is not None and release <= _LISTED[-1]
    takes_adapters = frozenset(adapters["takes"] + adapters["unverified"])
    runs_on_volta = release is not None and release < _DROPPED_VOLTA_IN
    return EngineSupport(
        architectures=_known(registry) if listed else None,
        takes_adapters=takes_adapters if listed else None,
        adapters_leave_vocabulary=frozenset(adapters["leaves_vocabulary"]),
        becomes_predictor=_BECOMES_PREDICTOR,
        predicts_over_stages=frozenset(
            drafter["model"]
            for drafter in _data("contract", release)["drafters"]
            if drafter["stages"]
        ),
        takes_eagle3=_TAKES_EAGLE3,
        quantizations=_QUANTIZATIONS,
        least_capability=None if runs_on_volta else _OLDEST,
        widens_fp8_from=_OLDEST,
        oldest_for=_OLDEST_FOR,
        backends=_backends(release) if listed else None,
    )


@cache
def _backends(release: tuple[int, int] | None) -> AttentionBackends:
    """Return where which attention is served, as the wheel said to ``tests/engine``.

    Older versions than those read have the backends of the oldest at most.
    """
    data = _data("contract", release)
    return AttentionBackends(
        targets=frozenset(data["architectures"]),
        serving={
            AttentionNeed(AttentionKind(kind), head, row["cache"], row["selected"]): frozenset(
                chain.from_iterable(row["backends"].values())
            )
            for row in data["rows"]
            for kind in row["kinds"]
            for head in row["heads"]
        },
    )


def _known(registry: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        registry["with_pipeline"] + registry["without_pipeline"] + registry["unverified"]
    )


_OLDEST: Final = (7, 5)  # Turing

_OLDEST_FOR: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    ("compressed-tensors", "mxfp4"): (8, 0),
    ("inc", "mxfp4"): (8, 0),
    ("modelopt", "fp8"): (8, 0),
    ("mxfp4", "mxfp4"): (8, 0),
    ("quark", "fp8"): (8, 9),
    ("torchao", "fp8"): (8, 9),  # beside activations in 8 bits; alone it is widened
}

_DROPPED_VOLTA_IN: Final = (0, 23)


_LISTED: Final = ((0, 32), (0, 33))
"""Minor versions with lists of the architectures and of those that take adapters. Older ones are
read by the oldest list, which knows more than they do; newer ones by the newest, and nothing is
refused for being on none.
"""


def _data(name: str, release: tuple[int, int] | None) -> Mapping[str, Any]:
    of = (
        _LISTED[-1]
        if release is None
        else next((listed for listed in _LISTED if release <= listed), _LISTED[-1])
    )
    return _list(name, f"{of[0]}.{of[1]}.0")


@cache
def _list(name: str, version: str) -> Mapping[str, Any]:
    file = resources.files("shardwright.engines").joinpath(f"vllm/data/{name}-{version}.json")
    data: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data
