"""Which environment variables a user may give the engine, and why not the others.

As with options, an unlisted name is refused, so a library cannot smuggle a setting in. The
administrator can admit further names, but never those that the operator sets, that hold secrets, or
that change how programs start.

The folders engines write to: only the pod's own, so that no file of an image must be writable.

Each library would use the same folder once ``HOME`` is the pod's. The variables are set all the
same, because the image's own may name a folder in it. Read in vLLM 0.32.0 and 0.33.0 and the
packages they install; TensorRT-LLM uses the same libraries. Both also write to /tmp and /dev/shm,
which are volumes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from shardwright.errors import Problem

COMMON: Final = frozenset(
    {
        # the time zone and the number of threads
        "KMP_AFFINITY",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OMP_PLACES",
        "OMP_PROC_BIND",
        "TOKENIZERS_PARALLELISM",
        "TZ",
        # the client of the hub
        "HF_HUB_DISABLE_PROGRESS_BARS",
        "HF_HUB_DISABLE_TELEMETRY",
        "HF_HUB_DISABLE_XET",
        "HF_HUB_DOWNLOAD_TIMEOUT",
        "HF_HUB_ENABLE_HF_TRANSFER",
        "HF_HUB_ETAG_TIMEOUT",
        "HF_HUB_VERBOSITY",
        "HF_XET_HIGH_PERFORMANCE",
        "HF_XET_NUM_CONCURRENT_RANGE_GETS",
        # how safetensors reads weights
        "SAFETENSORS_FAST_GPU",
        # GPUs and their runtime
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "HIP_FORCE_DEV_KERNARG",
        "HSA_ENABLE_SDMA",
        "HSA_NO_SCRATCH_RECLAIM",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "TORCH_CPP_LOG_LEVEL",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "TORCH_NCCL_ENABLE_MONITORING",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_SHOW_CPP_STACKTRACES",
        # how ranks reach each other
        "FI_EFA_ENABLE_SHM_TRANSFER",
        "FI_EFA_FORK_SAFE",
        "FI_EFA_USE_DEVICE_RDMA",
        "FI_LOG_LEVEL",
        "FI_PROVIDER",
        "GLOO_SOCKET_IFNAME",
        "NCCL_ALGO",
        "NCCL_BUFFSIZE",
        "NCCL_COLLNET_ENABLE",
        "NCCL_CROSS_NIC",
        "NCCL_CUMEM_ENABLE",
        "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_DEBUG",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_DMABUF_ENABLE",
        "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_IB_ADAPTIVE_ROUTING",
        "NCCL_IB_AR_THRESHOLD",
        "NCCL_IB_DISABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "NCCL_IB_MERGE_NICS",
        "NCCL_IB_PCI_RELAXED_ORDERING",
        "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_IB_RETRY_CNT",
        "NCCL_IB_ROCE_VERSION_NUM",
        "NCCL_IB_SL",
        "NCCL_IB_SPLIT_DATA_ON_QPS",
        "NCCL_IB_TC",
        "NCCL_IB_TIMEOUT",
        "NCCL_IGNORE_CPU_AFFINITY",
        "NCCL_LAUNCH_MODE",
        "NCCL_MAX_CTAS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_CTAS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MNNVL_ENABLE",
        "NCCL_NET",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_NET_GDR_READ",
        "NCCL_NET_SHARED_BUFFERS",
        "NCCL_NSOCKS_PERTHREAD",
        "NCCL_NTHREADS",
        "NCCL_NVLS_ENABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_P2P_PXN_LEVEL",
        "NCCL_PROTO",
        "NCCL_PXN_DISABLE",
        "NCCL_RUNTIME_CONNECT",
        "NCCL_SHM_DISABLE",
        "NCCL_SOCKET_FAMILY",
        "NCCL_SOCKET_IFNAME",
        "NCCL_SOCKET_NTHREADS",
        "RCCL_MSCCLPP_ENABLE",
        "RCCL_MSCCL_ENABLE",
        "UCX_IB_GID_INDEX",
        "UCX_IB_SL",
        "UCX_IB_TRAFFIC_CLASS",
        "UCX_LOG_LEVEL",
        "UCX_MAX_RNDV_RAILS",
        "UCX_NET_DEVICES",
        "UCX_RNDV_SCHEME",
        "UCX_RNDV_THRESH",
        "UCX_TLS",
    }
)
"""Variables that may be set for every engine: settings of the GPU libraries, the network and the
hub client, none of which takes a path, a host or the name of code.
"""

NEVER: Final[Mapping[str, str]] = {
    "CUDA_CACHE_PATH": "is set by shardwright",
    "CUDA_VISIBLE_DEVICES": "hides GPUs that the plan counts on",
    "HF_HOME": "is set by shardwright",
    "HF_HUB_OFFLINE": "is set by shardwright",
    "HOME": "is set by shardwright",
    "HSA_VISIBLE_DEVICES": "hides GPUs that the plan counts on",
    "HIP_VISIBLE_DEVICES": "hides GPUs that the plan counts on",
    "NVIDIA_VISIBLE_DEVICES": "reaches for GPUs that others hold",
    "ROCR_VISIBLE_DEVICES": "hides GPUs that the plan counts on",
    "TLLM_SPAWN_PROXY_PROCESS": "is set by the engine's own launcher",
    "TLLM_SPAWN_PROXY_PROCESS_IPC_ADDR": "is set by the engine's own launcher",
    "TLLM_SPAWN_PROXY_PROCESS_IPC_HMAC_KEY": "is set by the engine's own launcher, and is a secret",
    "TORCHINDUCTOR_CACHE_DIR": "is set by shardwright",
    "USER": "is set by shardwright",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "lets peers run code",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "lifts a limit that the plan was checked against",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load weights",
    "VLLM_API_KEY": "would put a secret into the pod's template; use spec.engine.apiKeySecretRef",
    "VLLM_CACHE_ROOT": "is set by shardwright",
    "VLLM_ENGINE_READY_TIMEOUT_S": "is set by shardwright from the bytes to load",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "is set by shardwright",
    "VLLM_HOST_IP": "is set by shardwright",
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "is set by shardwright: none is followed",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "is set by shardwright: it is the pod's own address",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "is set by shardwright",
    "VLLM_PORT": "clashes with the ports of the group",
    "VLLM_PP_LAYER_PARTITION": "is set by shardwright; pin spec.parallelism.partition instead",
    "VLLM_SERVER_DEV_MODE": "opens endpoints that run code",
}
"""Names that nobody can admit, and why."""

_HOLDS_SECRETS: Final = (
    "would put a secret into the pod's template; use "
    "spec.model.weights.secretRef or spec.engine.apiKeySecretRef"
)
_STARTS: Final = "changes how programs start and which code they load"

NEVER_CLASSES: Final[tuple[tuple[str, str], ...]] = (
    (
        r"(LD|PYTHON|BASH|PERL|DYLD|GLIBC|MALLOC)[A-Z0-9_]*|GCONV_PATH|PATH|IFS|ENV|SHELLOPTS|PS4",
        _STARTS,
    ),
    (
        r"([A-Z0-9_]+_)?(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID|ACCOUNT_KEY|CONNECTION_STRING)",
        _HOLDS_SECRETS,
    ),
    (
        r"AZURE_STORAGE_[A-Z0-9_]+|AWS_ENDPOINT_URL[A-Z0-9_]*",
        "goes past policy.admittedModels; use spec.model.weights",
    ),
    (
        r"SHARDWRIGHT_[A-Z0-9_]+|POD_[A-Z0-9_]+|KUBERNETES_[A-Z0-9_]+",
        "is set by shardwright or Kubernetes",
    ),
    (
        r"VLLM_DP_[A-Z0-9_]+|(LOCAL_|NODE_)?RANK|WORLD_SIZE|MASTER_(ADDR|PORT)|OMPI_[A-Z0-9_]+|PMIX_[A-Z0-9_]+",
        "contradicts the plan",
    ),
)
"""Forms of names that nobody can admit, and why."""

NEVER_PATTERN: Final = "|".join(form for form, _ in NEVER_CLASSES)
"""All of them as one expression."""

DANGEROUS: Final[Mapping[str, str]] = {
    "CUDA_INJECTION32_PATH": "loads code",
    "CUDA_INJECTION64_PATH": "loads code",
    "FI_PROVIDER_PATH": "loads code",
    "FLASHINFER_EXTRA_LDFLAGS": "loads code",
    "FLASHINFER_NVCC": "loads code",
    "NCCL_NETPLUGIN": "loads code",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "loads code",
    "TRITON_PTXAS_PATH": "loads code",
    "VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS": "gives requests tools that run code",
    "VLLM_LOGGING_CONFIG_PATH": "reads a file that can name code",
    "VLLM_PLUGINS": "loads code",
    "VLLM_USE_MODELSCOPE": "takes weights from another hub",
}
"""Names whose form does not tell their danger, each with it; refused unless the administrator
admits them.
"""

CLASSES: Final[tuple[tuple[str, str], ...]] = (
    (
        r"[A-Z0-9_]+_(PLUGINS?|LIB|LIBRARIES|LIBRARY_PATH|SO_PATH|MODULE_DIR|CACHE_MANAGER|HOME|NVCC|COMPILER|LDFLAGS)",
        "loads code",
    ),
    (
        r"[A-Z0-9_]+_(PATH|DIR|DIRS|FILE|FILENAME|ROOT|BASE|CACHE|FOLDER|DUMP|CONFIG)",
        "reads or writes another path",
    ),
    (
        r"[A-Z0-9_]*(ENDPOINT|_URL|_URI|PROXY|SERVER|_HOST|_IP|_ADDR|_ADDRESS|_PORT|REPOSITORY|COMM_ID)|[a-z]+_proxy",
        "sends data to, or takes it from, another host",
    ),
)
"""Forms of names that are refused unless the administrator admits them, each with the danger of
such settings.
"""

UNLISTED: Final = (
    "is on no list of settings that change neither the plan nor who may do what in the pod"
)
"""Why any other name is refused."""


def is_admissible(name: str) -> bool:
    """Return whether a variable may be set at all, for all models or where it is admitted."""
    return name not in NEVER and re.fullmatch(NEVER_PATTERN, name) is None


def check_environment(
    names: Iterable[str], allowed: Collection[str], admitted: Collection[str] = frozenset()
) -> tuple[Problem, ...]:
    """Return which variables a user may not set, each problem's path the name; values are ignored.

    Args:
        names: those that the user sets.
        allowed: those that anybody may set for the engine.
        admitted: those that the administrator lets users set besides.
    """
    return tuple(
        _refusal(name)
        for name in names
        if not is_admissible(name) or (name not in allowed and name not in admitted)
    )


def check_admitted(names: Iterable[str]) -> tuple[Problem, ...]:
    """Return which variables an administrator cannot admit, each problem's path the name."""
    return tuple(_refusal(name) for name in names if not is_admissible(name))


def _refusal(name: str) -> Problem:
    admissible = is_admissible(name)
    others = CLASSES if admissible else NEVER_CLASSES
    by_form = next((why for form, why in others if re.fullmatch(form, name)), UNLISTED)
    reason = DANGEROUS.get(name, by_form) if admissible else NEVER.get(name, by_form)
    extra_groups = (
        ", or have it added to policy.admittedEnvironment of the chart" if admissible else ""
    )
    return Problem(
        code="EnvironmentForbidden",
        path=name,
        what=name,
        limit="is not allowed",
        gap=f"because it {reason}",
        remedy=f"leave it out{extra_groups}",
    )


TMP_DIR: Final = "/tmp"  # noqa: S108 - a volume of the pod
"""Sockets, files that are read once, Ray's logs, sessions of Open MPI. Source:
``VLLM_RPC_BASE_PATH`` in vLLM's envs.py and Python's ``tempfile``, which both take ``TMPDIR``.
"""

_HOME: Final = "home"

BELOW_OWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HOME": _HOME,  # all that has no variable: ~/.deep_gemm, ~/.nv, ~/.ssh
        # the driver's own compiler; CUDA programming guide
        "CUDA_CACHE_PATH": f"{_HOME}/.nv/ComputeCache",
        # copies of a model's own code, if it may bring some; huggingface_hub 2.4, constants.py
        "HF_MODULES_CACHE": f"{_HOME}/.cache/huggingface/modules",
        # FlashInfer adds .cache/flashinfer; flashinfer/jit/env.py
        "FLASHINFER_WORKSPACE_BASE": _HOME,
        # else /tmp/torchinductor_USER; torch/_inductor/runtime/cache_dir_utils.py
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": f"{_HOME}/.triton/cache",  # triton/knobs.py
        "XDG_CACHE_HOME": f"{_HOME}/.cache",  # Numba, outlines, torch.hub; numba/misc/appdirs.py
        # VLLM_CONFIG_ROOT and its usage counters; vllm/envs.py
        "XDG_CONFIG_HOME": f"{_HOME}/.config",
    }
)
"""Variable to folder below the pod's own."""


def written_folders(own_dir: str, chosen: Collection[str] = ()) -> Mapping[str, str]:
    """Return the variables for these folders, without those ``chosen`` that may be admitted."""
    folders = {name: f"{own_dir}/{folder}" for name, folder in BELOW_OWN.items()} | {
        "TMPDIR": TMP_DIR
    }
    return {
        name: folder
        for name, folder in folders.items()
        # A folder that the administrator admits goes before ours; one that nobody can admit does
        # not.
        if name not in chosen or not is_admissible(name)
    }
