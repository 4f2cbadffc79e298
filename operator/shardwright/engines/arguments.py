"""Says a plan in vLLM's words: the arguments that are the same on every rank of a group.

Refuses nothing: the options of users have been checked by then. Number, address and role of a rank
are the launch script's to add.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.engines.option_tables import canonical, option_table
from shardwright.engines.options import argument_list
from shardwright.layouts.traits import DraftMethod
from shardwright.planning.report import Plan
from shardwright.units import GIB

API_KEY_VARIABLE: Final = "VLLM_API_KEY"
"""Variable in which vLLM finds the key that clients must send."""

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


PLAN_SAYS: Final = frozenset(
    {"gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs"}
)
"""Options that every plan sets, with the value of the user if there is one."""


DEFAULT_ADAPTER_RANK: Final = 16
"""Largest rank of an adapter if nobody names one; vLLM's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The settings of an engine's start that its environment carries: a folder of the pod's own,
    and limits in seconds.
    """

    own_dir: str
    load_seconds: int
    execute_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The model to serve and how to serve it, beside the plan.

    ``model`` is a hub id or a folder, ``served_name`` the name that clients ask for.
    ``load_format`` is how weights are read (None: as the engine sees fit). ``quantization`` is the
    format into which the engine turns the weights while loading (None: as stored).
    ``rendezvous_seconds`` bounds the start-up of the ranks among each other, ``drain_seconds`` is
    the time that running requests have after SIGTERM. ``adapters`` are served beside the model: the
    name that clients ask for and the folder of each; ``adapter_rank`` is the largest rank of one.
    ``drafts_by`` is how tokens are drafted (None: they are not), ``draft_tokens`` in every step, by
    the model or head in ``draft_model`` if there is one. ``arguments`` are the user's, already
    checked. ``files_dir`` is the folder with the files that an engine reads. ``over_ray`` says that
    a Ray cluster joins the ranks of several pods.
    """

    model: str
    served_name: str
    version: str
    rendezvous_seconds: int
    drain_seconds: int
    revision: str | None = None
    load_format: str | None = None
    reader: Mapping[str, object] = field(default_factory=dict)
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    drafts_by: DraftMethod | None = None
    draft_tokens: int = 0
    draft_model: str | None = None
    adapters: tuple[tuple[str, str], ...] = ()
    adapter_rank: int = DEFAULT_ADAPTER_RANK
    arguments: Mapping[str, object] = field(default_factory=dict)
    files_dir: str = ""
    over_ray: bool = False


def serve_arguments(plan: Plan, serving: Serving) -> tuple[str, ...]:
    """Return argv after ``vllm serve``, without the arguments that differ between ranks.

    The launch script adds ``--node-rank``, ``--master-addr`` and the role of the rank; over Ray
    followers are not told at all, and the leader only the address to listen on. Batch limits are
    always explicit: vLLM's defaults depend on the GPU's memory.
    """
    return (
        serving.model,
        *_pairs(
            {"served-model-name": serving.served_name, "revision": serving.revision}
        ),
        *_parallelism(plan, over_ray=serving.over_ray),
        *_exchange(plan, serving.version),
        *_beside_the_gpus(plan),
        *_limits(plan, serving),
        *_adapters(serving),
        *argument_list(_beside_the_plan(serving.arguments), serving.version),
    )


def _parallelism(plan: Plan, *, over_ray: bool) -> tuple[str, ...]:
    layout = plan.layout
    degrees = _pairs(
        {
            "tensor-parallel-size": layout.tensor,
            "pipeline-parallel-size": layout.pipeline,
            "data-parallel-size": layout.attention_data
            if layout.attention_data > 1
            else None,
            "decode-context-parallel-size": layout.context
            if layout.context > 1
            else None,
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
                {
                    "data-parallel-size-local": local,
                    "data-parallel-rpc-port": DATA_PARALLEL_PORT,
                }
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
    """Return how tokens of attention replicas meet in the experts, to an engine that is known to
    take it.
    """
    takes = "all2all-backend" in (option_table(version) or {})
    return (
        _pairs({"all2all-backend": EXCHANGE})
        if takes and plan.layout.attention_data > 1
        else ()
    )


def _beside_the_gpus(plan: Plan) -> tuple[str, ...]:
    """Return the GiB of K/V that an engine keeps in the memory of its nodes, all of its ranks
    together.
    """
    if plan.host_cache is None:
        return ()
    return _pairs(
        {
            "kv-offloading-size": plan.host_cache.engine_bytes // GIB,
            "kv-offloading-backend": "native",
        }
    )


def attention_replicas_per_pod(plan: Plan) -> int:
    """Return the attention replicas of one pod if a group has them on several; 0: all ranks of a
    group are one world.

    Each is a world of its own, so that the engine must not be told of other nodes.
    """
    return (
        plan.layout.attention_data // plan.nodes_per_replica
        if plan.nodes_per_replica > 1
        else 0
    )


def _devices(plan: Plan) -> str:
    """Return the devices of a pod by number: the engine tells local from remote ranks by how many
    there are.

    Without them it asks the platform, and a platform without GPUs (vLLM's CPU build) has one
    device. Source: ``distributed/device_communicators/shm_broadcast.py`` of vLLM 0.32.0; seen in a
    group of 2 x 2 ranks that failed without.
    """
    return ",".join(
        map(str, range(plan.layout.gpus_per_replica // plan.nodes_per_replica))
    )


def serve_environment(plan: Plan, start: Start) -> Mapping[str, str]:
    """Return the settings that vLLM reads only from the environment: its caches, limits, and the
    layers of stages if it would cut them differently.
    """
    partition = plan.layout.partition
    return {
        # The pod's user has a number and no name; vLLM asks for one (engine-measurements.md 2).
        "USER": "vllm",
        "VLLM_CACHE_ROOT": f"{start.own_dir}/vllm",
        # Its own limit is 600 s, too short for very slow weights (engine-measurements.md 2).
        "VLLM_ENGINE_READY_TIMEOUT_S": str(start.load_seconds),
        # This ends a leader whose peer is gone: nothing else of vLLM does
        # (engine-measurements.md 5.3).
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": str(start.execute_seconds),
        **(
            {"VLLM_PP_LAYER_PARTITION": ",".join(map(str, partition))}
            # Only for stages that vLLM would cut differently; it must be the same on every pod.
            if partition
            else {}
        ),
    }


def _beside_the_plan(arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Return the user's arguments without those that a plan says for him: it was made with them."""
    return {
        name: value
        for name, value in arguments.items()
        if canonical(name) not in PLAN_SAYS
    }


def _limits(plan: Plan, serving: Serving) -> tuple[str, ...]:
    return _pairs(
        {
            "max-model-len": plan.max_model_len,
            "max-num-seqs": plan.max_sequences,
            "max-num-batched-tokens": plan.max_batched_tokens,
            "gpu-memory-utilization": plan.memory_utilization,
            "kv-cache-dtype": serving.kv_cache_dtype,
            "load-format": serving.load_format,
            "model-loader-extra-config": json.dumps(serving.reader)
            if serving.reader
            else None,
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
    """Return the arguments that let vLLM serve adapters. Each has a slot, so that none waits for
    another to leave the batch.
    """
    if not serving.adapters:
        return ()
    slots = _pairs(
        {"max-loras": len(serving.adapters), "max-lora-rank": serving.adapter_rank}
    )
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
    """Return vLLM's settings for drafts; looked up in the prompt they may be as long as a
    step's.
    """
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
