"""A plan in SGLang's words: the arguments that are the same on every rank of a group.

The launch script adds a rank's number and address. Source: SGLang 0.5.23 ``srt/arg_groups``, whose
parser and resolution ``tests/engine`` asks about each of these lists.
"""

import math
from collections.abc import Mapping
from typing import Final

from shardwright.costs.estimates import StageMemory
from shardwright.engines import assumed
from shardwright.engines.launch import Serving
from shardwright.engines.options import argument_list
from shardwright.engines.sglang.policy import RULES
from shardwright.engines.sglang.traits import GRAPH_SEQUENCES
from shardwright.layouts.layout import DraftMethod
from shardwright.planning.report import Plan

PEER_PORT: Final = 29501
"""TCP port of the leader's rendezvous store. With attention replicas the six ports above it are
taken, too (``server_args.py:PortArgs``): all below the 29510 of our own rendezvous.
"""

_CACHES: Final = {"fp8": "fp8_e4m3"}
"""K/V formats that SGLang calls otherwise."""

_METHODS: Final = {
    DraftMethod.PROMPT_LOOKUP: "NGRAM",
    DraftMethod.DRAFT_MODEL: "STANDALONE",
    DraftMethod.EAGLE3: "EAGLE3",
    DraftMethod.MTP: "NEXTN",
}
"""The names of the ways to draft. Source: SGLang 0.5.23 ``srt/arg_groups/fields/spec.py``."""


def serve_arguments(plan: Plan, serving: Serving) -> tuple[str, ...]:
    """Return argv after ``sglang serve``, without the arguments that differ between ranks."""
    return (
        *_pairs(
            {
                "model-path": serving.model,
                "served-model-name": serving.served_name,
                "revision": serving.revision,
            }
        ),
        "--allowed-media-domains",
        *serving.media_domains,
        *_parallelism(plan),
        *_limits(plan),
        *_formats(serving),
        *_speculation(serving),
        *_pairs(
            {
                # Ranks that have loaded wait for the others.
                "dist-timeout": serving.load_seconds,
                # This ends an engine whose step hangs, as one does whose peer is gone.
                "watchdog-timeout": serving.execute_seconds,
            }
        ),
        "--enable-metrics",
        *argument_list(serving.arguments, serving.version, RULES),
    )


def _parallelism(plan: Plan) -> tuple[str, ...]:
    # Its tensor ranks are all of a stage: replicas of the attention are cut out of them.
    layout = plan.layout
    return _pairs(
        {
            "tp-size": layout.tensor * layout.attention_data,
            "pp-size": layout.pipeline,
            "attn-dp-size": _above_one(layout.attention_data),
            "ep-size": _above_one(layout.expert),
            "dcp-size": _above_one(layout.context),
            "nnodes": _above_one(plan.nodes_per_replica),
        }
    )


def _limits(plan: Plan) -> tuple[str, ...]:
    # It deals requests and chunks out to the replicas of the attention, for each of which a plan
    # has them.
    replicas = plan.layout.attention_data
    return _pairs(
        {
            "context-length": plan.max_model_len,
            "max-running-requests": plan.max_sequences * replicas,
            "chunked-prefill-size": plan.max_batched_tokens * replicas,
            "max-prefill-tokens": plan.max_batched_tokens,
            "mem-fraction-static": static_fraction(plan),
            "cuda-graph-max-bs-decode": min(plan.max_sequences, GRAPH_SEQUENCES),
        }
    )


def static_fraction(plan: Plan) -> float:
    """Return the share of a GPU that weights and K/V of the plan take, of what is free before.

    SGLang leaves the rest to activations, graphs and libraries, all of which a plan counts within
    its own share. Every rank is told the same, so the stage counts that leaves most.

    Source: SGLang 0.5.23 ``srt/mem_cache/kv_cache_configurator.py:_profile_available_bytes``.
    """
    return min(_static(stage, plan.memory_utilization) for stage in plan.stages)


def _static(stage: StageMemory, utilization: float) -> float:
    free = stage.budget_bytes / utilization - assumed.FIXED_OVERHEAD_BYTES
    return math.floor((stage.weights_bytes + stage.kv_cache_bytes) / free * 1000) / 1000


def _formats(serving: Serving) -> tuple[str, ...]:
    return _pairs(
        {
            "kv-cache-dtype": _CACHES.get(serving.kv_cache_dtype, serving.kv_cache_dtype),
            "load-format": serving.load_format,
            "quantization": serving.quantization,
        }
    )


def _speculation(serving: Serving) -> tuple[str, ...]:
    """Return how tokens are drafted: in a chain, as plans count them, and never in a tree."""
    if serving.drafts_by is None:
        return ()
    told = _pairs(
        {
            "speculative-algorithm": _METHODS[serving.drafts_by],
            "speculative-draft-model-path": serving.draft_model,
            # With the token that they are drafted after.
            "speculative-num-draft-tokens": serving.draft_tokens + 1,
        }
    )
    if serving.drafts_by is DraftMethod.PROMPT_LOOKUP:
        breadth = dict.fromkeys(("min-bfs-breadth", "max-bfs-breadth"), 1)
        return told + _pairs({f"speculative-ngram-{name}": one for name, one in breadth.items()})
    return told + _pairs(
        {"speculative-num-steps": serving.draft_tokens, "speculative-eagle-topk": 1}
    )


def _above_one(degree: int) -> int | None:
    return degree if degree > 1 else None


def _pairs(options: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    )
