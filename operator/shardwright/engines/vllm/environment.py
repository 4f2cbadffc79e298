"""The variables of vLLM: those that users may set, and those that only variables carry."""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.environment import COMMON
from shardwright.engines.launch import Start
from shardwright.planning.report import Plan

VARIABLES: Final = COMMON | {
    "AWS_MAX_ATTEMPTS",
    "AWS_RETRY_MODE",
    "RUNAI_STREAMER_CHUNK_BYTESIZE",
    "RUNAI_STREAMER_LOG_LEVEL",
    "RUNAI_STREAMER_LOG_TO_STDERR",
    "RUNAI_STREAMER_S3_TIMEOUT",
    "VLLM_ALLREDUCE_USE_SYMM_MEM",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_AUDIO_FETCH_TIMEOUT",
    "VLLM_COMPUTE_NANS_IN_LOGITS",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_CPU_NUM_OF_RESERVED_CPU",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_SGL_KERNEL",
    "VLLM_DEEP_GEMM_WARMUP",
    "VLLM_DISABLED_KERNELS",
    "VLLM_DISABLE_COMPILE_CACHE",
    "VLLM_DO_NOT_TRACK",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S",
    "VLLM_FLASH_ATTN_VERSION",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE",
    "VLLM_IMAGE_FETCH_TIMEOUT",
    "VLLM_LOGGING_LEVEL",
    "VLLM_LOGGING_PREFIX",
    "VLLM_LOG_BATCHSIZE_INTERVAL",
    "VLLM_LOG_STATS_INTERVAL",
    "VLLM_MARLIN_USE_ATOMIC_ADD",
    "VLLM_MOE_USE_DEEP_GEMM",
    "VLLM_MQ_MAX_CHUNK_BYTES_MB",
    "VLLM_NO_USAGE_STATS",
    "VLLM_RINGBUFFER_WARNING_INTERVAL",
    "VLLM_ROCM_CUSTOM_PAGED_ATTN",
    "VLLM_ROCM_QUICK_REDUCE_QUANTIZATION",
    "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT",
    "VLLM_ROCM_USE_AITER",
    "VLLM_ROCM_USE_AITER_LINEAR",
    "VLLM_ROCM_USE_AITER_MHA",
    "VLLM_ROCM_USE_AITER_MLA",
    "VLLM_ROCM_USE_AITER_MOE",
    "VLLM_ROCM_USE_AITER_RMSNORM",
    "VLLM_ROCM_USE_AITER_TRITON_GEMM",
    "VLLM_ROCM_USE_AITER_TRITON_ROPE",
    "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION",
    "VLLM_ROCM_USE_SKINNY_GEMM",
    "VLLM_RPC_TIMEOUT",
    "VLLM_SKIP_P2P_CHECK",
    "VLLM_SLEEP_WHEN_IDLE",
    "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS",
    "VLLM_USE_DEEP_GEMM",
    "VLLM_USE_DEEP_GEMM_E8M0",
    "VLLM_USE_FLASHINFER_MOE_FP16",
    "VLLM_USE_FLASHINFER_MOE_FP4",
    "VLLM_USE_FLASHINFER_MOE_FP8",
    "VLLM_USE_FLASHINFER_SAMPLER",
    "VLLM_USE_NCCL_SYMM_MEM",
    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE",
    "VLLM_VIDEO_FETCH_TIMEOUT",
    "VLLM_XGRAMMAR_CACHE_MB",
}
"""Variables that may be set for vLLM: logs, time-outs and the choice of kernels, as far as memory
and limits stay as planned.
"""


def environment(plan: Plan, start: Start) -> Mapping[str, str]:
    """Return what vLLM reads only from the environment: caches, limits, unusual stages."""
    partition = plan.layout.partition
    return {
        # The pod's user has a number and no name; vLLM asks for one (engine-measurements.md 2).
        "USER": "vllm",
        # A redirect would lead past the domains that media are fetched from.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_CACHE_ROOT": f"{start.own_dir}/vllm",
        # Its own limit is 600 s, too short for very slow weights (engine-measurements.md 2).
        "VLLM_ENGINE_READY_TIMEOUT_S": str(start.load_seconds),
        # This ends a leader whose peer is gone: nothing else of vLLM does
        # (engine-measurements.md 5.3).
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(start.execute_seconds),
        **(
            {"VLLM_PP_LAYER_PARTITION": ",".join(map(str, partition))}
            # Only for stages that vLLM would cut differently; it must be the same on every pod.
            if partition
            else {}
        ),
    }
