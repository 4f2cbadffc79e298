"""What engines without measurements share, each assumed figure with its basis.

A figure read or measured of one engine is in its own traits.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.layouts.layout import MemoryRules
from shardwright.units import KIB, MIB

NOT_READ: Final = "not known: nothing is refused or counted for it"

SOURCES: Final[Mapping[str, str]] = {
    "fixed_overhead_bytes": "assumed: 0.5 GiB, more than vLLM's fitted 0.3; not measured",
    "communication_overhead_bytes": "assumed: as vLLM's, measured on H100; both use NCCL",
    "host_communication_overhead_bytes": "assumed: as vLLM's, fitted; both use NCCL",
    "graph_bytes": "assumed: as vLLM's, fitted on one row",
    "graph_sequences": "assumed: as vLLM's",
    "captures": "assumed: as vLLM's",
    "logit_copies": "assumed: as vLLM's, fitted",
    "cache_of_free": "assumed: it takes a share of the GPU, and K/V is the rest of that",
    "refuses_long_requests": "not known: no length is refused",
    "architectures": NOT_READ,
    "quantizations": NOT_READ,
    "experts_at_least_tensor": NOT_READ,
    "ends_on_every_stage": "assumed: embedding on the first stage, head on the last",
    "embedding_on_every_stage": "assumed: on the first stage alone",
    "repeats_shared_experts": "assumed: cut over the tensor ranks",
    "repeats_dense_layers": "assumed: cut over the tensor ranks",
    "pads_shared_experts": "assumed: not padded",
    "experts_on_every_stage": NOT_READ,
    "width_divides_replica": NOT_READ,
    "prompts": NOT_READ,
    "takes_adapters": NOT_READ,
    "takes_predictor": NOT_READ,
    "adapters_leave_vocabulary": NOT_READ,
    "oldest_for": NOT_READ,
    "released": "engines/versions.py",
}


FIXED_OVERHEAD_BYTES: Final = 512 * MIB
"""What a rank takes before it loads anything; assumed, more than vLLM's fitted 300 MiB."""


def memory_rules(*, kv_block_tokens: int) -> MemoryRules:
    """Return an engine's memory rules for pages of so many K/V tokens; all else is assumed."""
    return MemoryRules(
        vocabulary_padding=64,
        memory_utilization=0.95,
        kv_block_tokens=kv_block_tokens,
        fixed_overhead_bytes=FIXED_OVERHEAD_BYTES,
        communication_overhead_bytes=1850 * MIB,
        host_communication_overhead_bytes=500 * MIB,
        graph_bytes=314 * KIB,
    )
