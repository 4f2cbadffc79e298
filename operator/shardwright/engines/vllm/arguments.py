"""A plan in vLLM's words: the arguments that are the same on every rank of a group.

Users' options are checked before; the launch script adds a rank's number, address and role.
"""

import json
from collections.abc import Mapping
from typing import Final

from shardwright.engines.option_tables import canonical, option_table
from shardwright.engines.options import argument_list
from shardwright.engines.serving import Serving, attention_replicas_per_pod
from shardwright.engines.vllm.policy import RULES
from shardwright.layouts.traits import DraftMethod
from shardwright.planning.report import Plan
from shardwright.units import GIB

MASTER_PORT: Final = 29501
"""TCP port of the leader's rendezvous store; vLLM's own default."""


DATA_PARALLEL_PORT: Final = 13345
"""TCP port by which the leader reaches the attention replicas of other pods; as in
engine-measurements.md 1, away from vLLM's own 29550.
"""


EXCHANGE: Final = "allgather_reducescatter"
"""How tokens of attention replicas meet in the experts, as plans price it (``costs/roofline.py``);
the default of vLLM 0.32 and 0.33, said all the same: a default may change, and the price would not.
"""


PLAN_SAYS: Final = frozenset({"gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs"})
"""Options that every plan sets, with the value of the user if there is one."""


def serve_arguments(plan: Plan, serving: Serving) -> tuple[str, ...]:
    """Return argv after ``vllm serve``, without the arguments that differ between ranks.

    The launch script adds ``--node-rank``, ``--master-addr`` and the rank's role; over Ray
    followers are told nothing, and the leader only the address to listen on. Batch limits are
    always explicit: vLLM's defaults depend on the GPU's memory.
    """
    return (
        serving.model,
        *_pairs({"served-model-name": serving.served_name, "revision": serving.revision}),
        *_parallelism(plan, over_ray=serving.over_ray),
        *_exchange(plan, serving.version),
        *_beside_the_gpus(plan),
        *_limits(plan, serving),
        *_adapters(serving),
        *argument_list(_beside_the_plan(serving.arguments), serving.version, RULES),
    )


def _parallelism(plan: Plan, *, over_ray: bool) -> tuple[str, ...]:
    layout = plan.layout
    degrees = _pairs(
        {
            "tensor-parallel-size": layout.tensor,
            "pipeline-parallel-size": layout.pipeline,
            "data-parallel-size": layout.attention_data if layout.attention_data > 1 else None,
            "decode-context-parallel-size": layout.context if layout.context > 1 else None,
        }
    )
    experts = ("--enable-expert-parallel",) if layout.expert > 1 else ()
    if plan.nodes_per_replica == 1:
        return degrees + experts
    if local := attention_replicas_per_pod(plan):
        return (
            degrees
            + experts
            + _pairs(
                {"data-parallel-size-local": local, "data-parallel-rpc-port": DATA_PARALLEL_PORT}
            )
        )
    if over_ray:  # it tells the engine of other nodes
        return degrees + experts + _pairs({"distributed-executor-backend": "ray"})
    nodes = {
        # mp: no further ports and packages than the engine's (engine-measurements.md 1.2).
        "distributed-executor-backend": "mp",
        "nnodes": plan.nodes_per_replica,
        "master-port": MASTER_PORT,
    }
    # Ranks that differ in these flags hang and do not fail (engine-measurements.md 5.8).
    return degrees + experts + _pairs(nodes | {"device-ids": _devices(plan)})


def _exchange(plan: Plan, version: str) -> tuple[str, ...]:
    """Return how attention replicas exchange tokens in the experts, if the engine takes it."""
    takes = "all2all-backend" in (option_table(version, RULES.tables) or {})
    return _pairs({"all2all-backend": EXCHANGE}) if takes and plan.layout.attention_data > 1 else ()


def _beside_the_gpus(plan: Plan) -> tuple[str, ...]:
    """Return the GiB of K/V that an engine keeps in its nodes' memory, for all its ranks."""
    if plan.host_cache is None:
        return ()
    return _pairs(
        {
            "kv-offloading-size": plan.host_cache.engine_bytes // GIB,
            "kv-offloading-backend": "native",
        }
    )


def _devices(plan: Plan) -> str:
    """Return a pod's devices by number: their count tells the engine local from remote ranks.

    Without them it asks the platform, and one without GPUs (vLLM's CPU build) has one device.
    Source: ``distributed/device_communicators/shm_broadcast.py`` of vLLM 0.32.0; seen in a group of
    2 x 2 ranks that failed without.
    """
    return ",".join(map(str, range(plan.layout.gpus_per_replica // plan.nodes_per_replica)))


def _beside_the_plan(arguments: Mapping[str, object]) -> Mapping[str, object]:
    # The plan was made with them.
    return {name: value for name, value in arguments.items() if canonical(name) not in PLAN_SAYS}


def _limits(plan: Plan, serving: Serving) -> tuple[str, ...]:
    return _pairs(
        {
            "max-model-len": plan.max_model_len,
            "max-num-seqs": plan.max_sequences,
            "max-num-batched-tokens": plan.max_batched_tokens,
            "gpu-memory-utilization": plan.memory_utilization,
            "kv-cache-dtype": serving.kv_cache_dtype,
            "load-format": serving.load_format,
            "model-loader-extra-config": json.dumps(serving.reader) if serving.reader else None,
            "quantization": serving.quantization,
            "speculative-config": _speculation(serving),
            # Else torch's own limits hold, 10 minutes of NCCL and 30 of gloo, whatever the weights
            # take to load (engine-measurements.md 2).
            "distributed-timeout-seconds": serving.rendezvous_seconds,
            "cpu-distributed-timeout-seconds": serving.rendezvous_seconds,
            # vLLM's default is 0: SIGTERM would end all running requests.
            "shutdown-timeout": serving.drain_seconds,
        }
    )


def _adapters(serving: Serving) -> tuple[str, ...]:
    # Each has a slot, so that none waits for another to leave the batch.
    if not serving.adapters:
        return ()
    slots = _pairs({"max-loras": len(serving.adapters), "max-lora-rank": serving.adapter_rank})
    return (
        "--enable-lora",
        *slots,
        "--lora-modules",
        *(f"{name}={folder}" for name, folder in serving.adapters),
    )


_METHODS: Final = {
    DraftMethod.PROMPT_LOOKUP: "ngram",
    DraftMethod.DRAFT_MODEL: "draft_model",
    DraftMethod.EAGLE3: "eagle3",
    DraftMethod.MTP: "mtp",
}
"""The names of the ways to draft in vLLM 0.32 and 0.33
(``config/speculative.py:SpeculativeMethod``).
"""


def _speculation(serving: Serving) -> str | None:
    # Looked up in the prompt, drafts may be as long as a step's.
    if serving.drafts_by is None:
        return None
    model = {} if serving.draft_model is None else {"model": serving.draft_model}
    said = {
        "method": _METHODS[serving.drafts_by],
        **model,
        "num_speculative_tokens": serving.draft_tokens,
    }
    if serving.drafts_by is DraftMethod.PROMPT_LOOKUP:
        said["prompt_lookup_max"] = serving.draft_tokens
    return json.dumps(said)


def _pairs(options: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    )
