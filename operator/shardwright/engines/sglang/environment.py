"""The variables of SGLang: those that users may set, and those that only variables carry."""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.environment import COMMON
from shardwright.engines.launch import Start
from shardwright.planning.report import Plan

VARIABLES: Final = COMMON | {
    "SGLANG_CUTLASS_MOE",
    "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGLANG_ENABLE_NAN_LOGITS_CHECK",
    "SGLANG_IO_WORKERS",
    "SGLANG_LOG_GC",
    "SGLANG_LOG_MS",
    "SGLANG_LOG_REQUEST_EXCEEDED_MS",
    "SGLANG_LOG_SCHEDULER_STATUS_INTERVAL",
    "SGLANG_REQ_RUNNING_TIMEOUT",
    "SGLANG_REQ_WAITING_TIMEOUT",
    "SGLANG_SET_CPU_AFFINITY",
}
"""Variables that may be set for SGLang: logs, time-outs and the choice of kernels."""


def environment(plan: Plan, start: Start) -> Mapping[str, str]:
    """Return what SGLang reads only from the environment: caches, health, unusual stages.

    Source: SGLang 0.5.23 ``srt/environ.py``, ``srt/distributed/utils.py:get_pp_indices``.
    """
    partition = plan.layout.partition
    return {
        "USER": "sglang",
        "SGLANG_CACHE_DIR": f"{start.own_dir}/sglang",
        # Else every look at /health is a request of a second or more, which a kubelet does not
        # wait for; whether tokens come is watched beside it.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        **({"SGLANG_PP_LAYER_PARTITION": ",".join(map(str, partition))} if partition else {}),
    }
