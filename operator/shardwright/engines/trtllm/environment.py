"""The variables of TensorRT-LLM: those that users may set, and those that only variables carry."""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.environment import COMMON
from shardwright.engines.launch import Start
from shardwright.planning.report import Plan

VARIABLES: Final = COMMON | {
    "NCCL_GRAPH_REGISTER",
    "TLLM_LOG_FIRST_RANK_ONLY",
    "TLLM_LOG_LEVEL",
    "TRTLLM_ENABLE_PDL",
}
"""Variables that may be set for TensorRT-LLM."""


def environment(plan: Plan, start: Start) -> Mapping[str, str]:
    """Return the settings TensorRT-LLM takes only from the environment."""
    del plan, start
    return {"USER": "trtllm"}
