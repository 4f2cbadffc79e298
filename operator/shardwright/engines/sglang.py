"""SGLang's traits: what predicting its speed must know of it, each figure with its source or the
word ``assumed``.

It is predicted, not deployed: nothing here says how it is started, and what no published case needs
is not known.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.eras import HUGE_BATCH, LARGE_BATCH
from shardwright.layouts.traits import (
    BatchRules,
    CutRules,
    EngineSupport,
    EngineTraits,
    MemoryRules,
    Remainder,
)
from shardwright.units import KIB, MIB

NAME: Final = "SGLang"

_NOT_READ: Final = "not known: nothing is refused or counted for it"
_NOT_ASKED: Final = "no figure: it is predicted without"

_SOURCES: Final[Mapping[str, str]] = {
    "remainder": (
        "sglang source, srt/distributed/utils.py:get_pp_indices: the last stages get one more"
    ),
    "vocabulary_padding": "assumed: 64, as vLLM's",
    "memory_utilization": (
        "assumed: 0.95; its own mem_fraction_static lies lower and leaves room for what is counted "
        "here beside it"
    ),
    "kv_block_tokens": "sglang source, srt/server_args.py: page_size, 1 by default",
    "max_batched_tokens": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "max_sequences": "assumed: as vLLM's on GPUs of less than 70 GiB",
    "batch_defaults": "assumed: as vLLM's",
    "fixed_overhead_bytes": "assumed: 0.5 GiB, more than vLLM's fitted 0.3; not measured",
    "communication_overhead_bytes": "assumed: as vLLM's, measured on H100; both use NCCL",
    "host_communication_overhead_bytes": "assumed: as vLLM's, fitted; both use NCCL",
    "graph_bytes": "assumed: as vLLM's, fitted on one row",
    "graph_sequences": "assumed: as vLLM's",
    "counts_graphs": "assumed: as vLLM's",
    "logit_copies": "assumed: as vLLM's, fitted",
    "chunks_prompts": "sglang source, srt/server_args.py: chunked_prefill_size",
    "mixes_prompts": "sglang source, srt/server_args.py: enable_mixed_chunk, off by default",
    "kv_cache_bytes": _NOT_ASKED,
    "reserves_output": "assumed: pages are taken as a request grows",
    "cache_follows_weights": (
        "sglang source, srt/server_args.py: kv_cache_dtype auto; assumed to be the model's"
    ),
    "refuses_long_requests": "not known: no length is refused",
    "mixes_expert_cuts": "assumed: ep_size ranks of experts, each sliced over the rest",
    "shares_context": "assumed: as vLLM's",
    "data_beside_tensor": "assumed: as vLLM's",
    "deals_experts_evenly": _NOT_READ,
    "over_ray": _NOT_ASKED,
    "architectures": _NOT_READ,
    "without_pipeline": _NOT_READ,
    "quantizations": _NOT_READ,
    "experts_at_least_tensor": _NOT_READ,
    "ends_on_every_stage": "assumed: embedding on the first stage, head on the last",
    "embedding_on_every_stage": "assumed: on the first stage alone",
    "repeats_shared_experts": "assumed: cut over the tensor ranks",
    "repeats_dense_layers": "assumed: cut over the tensor ranks",
    "pads_shared_experts": "assumed: not padded",
    "experts_on_every_stage": _NOT_READ,
    "width_divides_replica": _NOT_READ,
    "adapters": _NOT_ASKED,
    "takes_adapters": _NOT_READ,
    "adapters_leave_vocabulary": _NOT_READ,
    "adapter_vocabulary": _NOT_ASKED,
    "drafter": _NOT_ASKED,
    "becomes_predictor": _NOT_ASKED,
    "takes_eagle3": _NOT_ASKED,
    "least_capability": "assumed: 7.5, as vLLM's",
    "widens_fp8_from": "assumed: 7.5, as vLLM's",
    "oldest_for": _NOT_READ,
    "released": "engines/release_months.py",
    "told": _NOT_ASKED,
    "warnings": "none: it is predicted, not planned",
}


def traits(version: str | None) -> EngineTraits:
    """Return the traits of SGLang that predicting must know; of all versions they are alike."""
    return EngineTraits(
        name=NAME,
        version=version or "",
        batching=BatchRules(
            max_batched_tokens=2048,
            max_sequences=256,
            batch_defaults=(HUGE_BATCH, LARGE_BATCH),
            refuses_long_requests=False,
            mixes_prompts=False,
        ),
        memory=MemoryRules(
            vocabulary_padding=64,
            memory_utilization=0.95,
            kv_block_tokens=1,
            fixed_overhead_bytes=512 * MIB,
            communication_overhead_bytes=1850 * MIB,
            host_communication_overhead_bytes=500 * MIB,
            graph_bytes=314 * KIB,
        ),
        cuts=CutRules(
            remainder=Remainder.LAST,
            mixes_expert_cuts=True,
        ),
        support=EngineSupport(
            least_capability=(7, 5),
            widens_fp8_from=(7, 5),
        ),
        sources=_SOURCES,
    )
