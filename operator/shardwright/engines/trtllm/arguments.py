"""A plan in TensorRT-LLM's words.

Degrees and limits are on the command line, the rest is in a configuration file, whose keys override
it; it also has settings that 1.2 does not take on the command line. Sources: engine-measurements.md
10; the lists in ``tests/data/engines``.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from shardwright.engines.launch import Serving
from shardwright.engines.options import argument_list, configuration
from shardwright.engines.trtllm.policy import RULES
from shardwright.engines.trtllm.traits import GRAPH_SEQUENCES, OF_1_2
from shardwright.layouts.layout import DraftMethod
from shardwright.planning.report import Plan

CONFIGURATION: Final = "trtllm.yaml"
"""Name of the configuration file; JSON, which every YAML parser reads."""

SSH_PORT: Final = 2222
"""TCP port of the followers' sshd: above 1023, so that nobody must be root."""


def serve_arguments(plan: Plan, serving: Serving) -> tuple[str, ...]:
    """Return argv after ``trtllm-serve``, without host and port, the same on every rank."""
    layout = plan.layout
    # Limits that a user sets are the plan's.
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
    said = configuration(serving.arguments, serving.version, RULES)
    # Ours last: a user's key must not change a number of the plan.
    found = _merged(_merged(_defaults(plan), said), _ours(plan, serving))
    found = {name: value for name, value in found.items() if name not in _ON_THE_COMMAND_LINE}
    return {CONFIGURATION: json.dumps(found, indent=2, sort_keys=True) + "\n"}


_ON_THE_COMMAND_LINE: Final = frozenset({"max_batch_size", "max_num_tokens"})
"""Keys that users may set, and that every plan says there."""


def _defaults(plan: Plan) -> dict[str, Any]:
    """Return what is said unless a user says otherwise."""
    largest = min(plan.max_sequences, GRAPH_SEQUENCES)
    return {
        # Batches between two sizes run in the graph of the larger one.
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": largest},
        "enable_chunked_prefill": True,
        "kv_cache_config": {"enable_block_reuse": True},
    }


def _ours(plan: Plan, serving: Serving) -> dict[str, Any]:
    layout = plan.layout
    ours: dict[str, Any] = {
        "enable_attention_dp": layout.attention_data > 1,
        "enable_iter_perf_stats": True,
        "gpus_per_node": layout.gpus_per_replica // plan.nodes_per_replica,
        "kv_cache_config": {
            "dtype": serving.kv_cache_dtype,
            "free_gpu_memory_fraction": plan.memory_utilization,
        },
    }
    if drafts := _speculation(serving):
        ours["speculative_config"] = drafts
    if layout.partition:
        ours["pp_partition"] = list(layout.partition)
    if serving.revision is not None:
        ours["revision"] = serving.revision
    return ours


_METHODS: Final = {
    DraftMethod.PROMPT_LOOKUP: "NGram",
    DraftMethod.DRAFT_MODEL: "Draft_Target",
    DraftMethod.EAGLE3: "Eagle3",
    DraftMethod.MTP: "MTP",
}
_METHODS_OF_1_2: Final = {DraftMethod.DRAFT_MODEL: "DraftTarget", DraftMethod.EAGLE3: "Eagle"}
"""Ways to draft as ``decoding_type`` names them, and those that 1.2 calls otherwise. Source:
TensorRT-LLM ``llmapi/llm_args.py:DecodingBaseConfig`` at 00e8cf7 and 0004396.
"""


def _speculation(serving: Serving) -> dict[str, Any]:
    """Return how tokens are drafted, empty if they are not."""
    if serving.drafts_by is None:
        return {}
    older = serving.version.startswith(OF_1_2)
    names = _METHODS | _METHODS_OF_1_2 if older else _METHODS
    said: dict[str, Any] = {"decoding_type": names[serving.drafts_by]}
    if serving.drafts_by is DraftMethod.MTP and older:
        # 1.2 takes its length from this key alone.
        return said | {"num_nextn_predict_layers": serving.draft_tokens}
    said["max_draft_len"] = serving.draft_tokens
    if serving.drafts_by is DraftMethod.PROMPT_LOOKUP:
        said["max_matching_ngram_size"] = serving.draft_tokens
    if serving.draft_model is not None:
        said["speculative_model_dir"] = serving.draft_model
    return said


_WHOLE: Final = "cuda_graph_config"
"""The object of which a user says all or nothing: sizes and the largest of them belong together."""


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping of two: of objects in both all keys, and of values the second's."""
    both = {
        name: {**first[name], **value}
        for name, value in second.items()
        if name != _WHOLE and isinstance(value, Mapping) and isinstance(first.get(name), Mapping)
    }
    return {**first, **second, **both}
