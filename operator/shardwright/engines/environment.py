"""Which environment variables a user may give the engine, and why not the others."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from shardwright.errors import Problem

ALLOWED: Final = re.compile(
    r"(NCCL|GLOO|TORCH|PYTORCH|TORCH_NCCL|CUDA|VLLM|FLASHINFER|TRITON|OMP|MKL|TLLM|TRTLLM|UCX|FI|RCCL|HSA|HIP|HF_HUB|HF_XET)_[A-Z0-9_]+"
    r"|HF_ENDPOINT|TZ|TOKENIZERS_PARALLELISM|(HTTP|HTTPS|NO)_PROXY|(http|https|no)_proxy"
)
"""Names that may be set at all: settings of the engine, the GPU libraries, the hub client, the proxy."""

REFUSED: Final[Mapping[str, str]] = {
    "CUDA_CACHE_PATH": "is set by shardwright",
    "CUDA_INJECTION32_PATH": "loads code",
    "CUDA_INJECTION64_PATH": "loads code",
    "CUDA_VISIBLE_DEVICES": "hides GPUs that the plan counts on",
    "FI_PROVIDER_PATH": "loads code",
    "HF_HUB_OFFLINE": "is set by shardwright",
    "HSA_TOOLS_LIB": "loads code",
    "NCCL_ENV_PLUGIN": "loads code",
    "NCCL_NET_PLUGIN": "loads code",
    "NCCL_PROFILER_PLUGIN": "loads code",
    "NCCL_TUNER_PLUGIN": "loads code",
    "OMP_TOOL_LIBRARIES": "loads code",
    "TLLM_SPAWN_PROXY_PROCESS": "is set by the engine's own launcher",
    "TLLM_SPAWN_PROXY_PROCESS_IPC_ADDR": "is set by the engine's own launcher",
    "TLLM_SPAWN_PROXY_PROCESS_IPC_HMAC_KEY": "is set by the engine's own launcher, and is a secret",
    "TORCHINDUCTOR_CACHE_DIR": "is set by shardwright",
    "TRITON_CACHE_MANAGER": "loads code",
    "UCX_MODULE_DIR": "loads code",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "lets peers run code",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "lifts a limit that the plan was checked against",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load weights",
    "VLLM_API_KEY": "would put a secret into the pod's template; use spec.engine.apiKeySecretRef",
    "VLLM_CACHE_ROOT": "is set by shardwright",
    "VLLM_CONFIG_ROOT": "reads configuration from a path of its own",
    "VLLM_ENGINE_READY_TIMEOUT_S": "is set by shardwright from the bytes to load",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "is set by shardwright",
    "VLLM_HOST_IP": "is set by shardwright",
    "VLLM_LOGGING_CONFIG_PATH": "reads a file that can name code",
    "VLLM_NCCL_SO_PATH": "loads code",
    "VLLM_PLUGINS": "loads code",
    "VLLM_PORT": "clashes with the ports of the group",
    "VLLM_PP_LAYER_PARTITION": "is set by shardwright; pin spec.parallelism.partition instead",
    "VLLM_SERVER_DEV_MODE": "opens endpoints that run code",
}
"""Names of that form that may not be set, and why."""

LOADS_CODE: Final = re.compile(r"[A-Z0-9_]+_(PLUGIN|LIB|LIBRARIES|LIBRARY_PATH|SO_PATH|MODULE_DIR|CACHE_MANAGER)")
"""Names that say that they name code to load; libraries add such settings without asking us."""


def check_environment(names: Iterable[str]) -> tuple[Problem, ...]:
    """Return which variables may not be set, each problem's path being the name; values are never looked at."""
    return tuple(_refusal(name) for name in names if not _may_be_set(name))


def _may_be_set(name: str) -> bool:
    return ALLOWED.fullmatch(name) is not None and name not in REFUSED and not LOADS_CODE.fullmatch(name)


def _refusal(name: str) -> Problem:
    unknown = "is none of the engine's, the GPU libraries' or the hub's settings"
    reason = REFUSED.get(name) or ("loads code" if ALLOWED.fullmatch(name) else unknown)
    return Problem(
        code="EnvironmentForbidden",
        path=name,
        what=name,
        limit="is not allowed",
        gap=f"because it {reason}",
        remedy="leave it out",
    )
