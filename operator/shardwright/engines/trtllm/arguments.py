"""A plan in TensorRT-LLM's words.

Degrees and limits are on the command line, the rest is in a configuration file, whose keys override
it; it also has settings that 1.2 does not take on the command line. Sources: engine-measurements.md
10; the lists in ``tests/data/engines``.
"""

import json
from collections.abc import Mapping
from typing import Final

from shardwright.engines.launch import Serving
from shardwright.engines.options import argument_list, configuration
from shardwright.engines.trtllm.policy import RULES
from shardwright.planning.report import Plan

CONFIGURATION: Final = "trtllm.yaml"
"""Name of the configuration file; JSON, which every YAML parser reads."""

SSH_PORT: Final = 2222
"""TCP port of the followers' sshd: above 1023, so that nobody must be root."""


def serve_arguments(plan: Plan, serving: Serving) -> tuple[str, ...]:
    """Return argv after ``trtllm-serve``, without host and port, the same on every rank."""
    layout = plan.layout
    options = {
        # TensorRT-LLM spreads replicas of attention over its tensor ranks: enable_attention_dp in
        # the file says so.
        "tp_size": layout.tensor * layout.attention_data,
        "pp_size": layout.pipeline,
        "ep_size": layout.expert if layout.expert > 1 else None,
        "max_batch_size": plan.max_sequences,
        "max_num_tokens": plan.max_batched_tokens,
        "max_seq_len": plan.max_model_len,
    }
    words = (
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    )
    file = ("--extra_llm_api_options", f"{serving.files_dir}/{CONFIGURATION}")
    return (serving.model, *words, *file, *argument_list(serving.arguments, serving.version, RULES))


def files(plan: Plan, serving: Serving) -> Mapping[str, str]:
    """Return the configuration file: everything that is no plain degree or limit."""
    layout = plan.layout
    ours: dict[str, object] = {
        "enable_attention_dp": layout.attention_data > 1,
        "enable_chunked_prefill": True,
        "enable_iter_perf_stats": True,
        "gpus_per_node": layout.gpus_per_replica // plan.nodes_per_replica,
        "kv_cache_config": {
            "dtype": serving.kv_cache_dtype,
            "enable_block_reuse": True,
            "free_gpu_memory_fraction": cache_fraction(plan),
        },
    }
    if layout.partition:
        ours["pp_partition"] = list(layout.partition)
    if serving.revision is not None:
        ours["revision"] = serving.revision
    said = configuration(serving.arguments, serving.version, RULES)
    # Ours last: a user's key must not change a number of the plan.
    return {CONFIGURATION: json.dumps({**said, **ours}, indent=2, sort_keys=True) + "\n"}


def cache_fraction(plan: Plan) -> float:
    """Return K/V's share of the memory beside weights and buffers, in thousandths rounded down.

    The plan's cache is a share of the whole GPU, the engine's a share of what is free after
    loading; the stage that holds the fewest tokens decides, as the smallest rank does in the
    engine.
    """
    stage = min(
        plan.stages, key=lambda stage: stage.kv_cache_bytes / max(1, stage.kv_bytes_per_token)
    )
    free = stage.budget_bytes / plan.memory_utilization - (
        stage.budget_bytes - stage.kv_cache_bytes
    )
    return int(1000 * stage.kv_cache_bytes / free) / 1000
