"""A plan in vLLM's words: the arguments that are the same on every rank of a group.

Users' options are checked before; the launch script adds a rank's number, address and role.

vLLM's options that depend on a model's family: the parsers of its tool calls and reasoning.

They change only the fields of tool calls and reasoning, not the text of answers. So these are
defaults: a user can set each option, or turn all of them off.

Which family wants which parser: vllm-project/recipes of August 2026 (``recipes``), docs.vllm.ai,
features/tool_calling and reasoning_outputs of 0.32 (``docs``). Families whose tool calls need a
chat template that their repositories lack get no parser of tool calls: another image may not have
the template's file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.costs.workload import Phase
from shardwright.engines.launch import Serving, attention_replicas_per_pod
from shardwright.engines.options import argument_list
from shardwright.engines.policy import canonical, option_table
from shardwright.engines.vllm.policy import RULES
from shardwright.layouts.layout import DraftMethod
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


KEY_GUARD: Final = "key_guard.KeyGuard"
"""Module and class of the guard that asks for the API key (``rendering/programs``), as vLLM imports
it.
"""


TRANSFER_PORT: Final = 5600
"""TCP port at which a half of a pair tells the other where its K/V is; vLLM's own default, and one
more for each attention replica. Source: vLLM 0.32 and 0.33 ``envs.py``,
``VLLM_NIXL_SIDE_CHANNEL_PORT``.
"""

LEASE_SECONDS: Final = 30
"""How long K/V of a finished prompt is kept for the half that answers. Source: vLLM 0.33
``kv_connector/v1/nixl``, ``kv_lease_duration``.
"""

_TRANSFERS: Final = {
    phase: json.dumps(
        {
            "kv_connector": "NixlConnector",
            "kv_role": role,
            # Its default, fail, makes an error of every transfer that breaks; this computes the
            # prompt anew.
            "kv_load_failure_policy": "recompute",
        }
    )
    for phase, role in ((Phase.PREFILL, "kv_producer"), (Phase.DECODE, "kv_consumer"))
}


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
        "--allowed-media-domains",
        *serving.media_domains,
        *_parallelism(plan, over_ray=serving.over_ray),
        *_exchange(plan, serving.version),
        *_beside_the_gpus(plan),
        *_limits(plan, serving),
        *_adapters(serving),
        *_overload(plan, serving),
        # Else the router gets no tokens of a prompt (403), and follows no prefix.
        *(("--enable-scale-out",) if serving.gives_tokens else ()),
        *(_pairs({"kv-transfer-config": _TRANSFERS[serving.phase]}) if serving.phase else ()),
        *argument_list(_beside_the_plan(serving.arguments), serving.version, RULES),
        # Last: what is added last is asked first, before all that an administrator may admit.
        *(_pairs({"middleware": KEY_GUARD}) if serving.guarded else ()),
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


MEET_SECONDS: Final = 900
"""How long a rank waits for another over NCCL where none is still loading: to join before they
load, and to compile after that. Basis: assumed, one and a half times torch's own limit; a start
that hangs is noticed then, and not when the weights would have been loaded.
"""

_READ_TOGETHER: Final = frozenset({"fastsafetensors", "runai_streamer"})
"""Readers of weights whose ranks read for each other, over NCCL. Source: vLLM 0.33
``model_executor/model_loader/weight_utils.py``.
"""


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
            "distributed-timeout-seconds": _nccl_seconds(plan, serving),
            # Ranks that have loaded wait for the others over gloo, whose own limit is 30 minutes
            # (engine-measurements.md 2).
            "cpu-distributed-timeout-seconds": serving.load_seconds,
            # vLLM's default is 0: SIGTERM would end all running requests.
            "shutdown-timeout": serving.drain_seconds,
        }
    )


REFUSED_FROM: Final = 2
"""Unit: the requests in flight that the plan says a replica holds. Basis: chosen: then one waits
for each that is served, about as long as one takes; an autoscaler at 0.8 of them sees the rest.
"""


def most_in_flight(plan: Plan) -> int:
    """Return from how many requests in flight an engine refuses more, over its attention replicas.

    An engine's batch stands for a plan without a speed. Source: vLLM 0.32 ``SchedulerConfig``,
    "waiting or running", counted in the API server; the answer is 503.
    """
    batch = plan.max_sequences * plan.layout.attention_data
    return REFUSED_FROM * (plan.replica_requests or batch)


def _overload(plan: Plan, serving: Serving) -> tuple[str, ...]:
    ours = {
        "max-num-queued-reqs": most_in_flight(plan) if serving.refuses else None,
        "scheduling-policy": "priority" if serving.by_priority else None,
    }
    said = set(map(canonical, serving.arguments))
    return _pairs({name: value for name, value in ours.items() if name not in said})


def _nccl_seconds(plan: Plan, serving: Serving) -> int:
    """Return how long ranks may wait for each other over NCCL: long where one may still load."""
    apart = plan.layout.attention_data > 1  # each has an engine of its own, which waits for none
    together = serving.load_format in _READ_TOGETHER
    wait = serving.load_seconds
    return wait if apart or together else min(wait, MEET_SECONDS)


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


_TOOLS: Final = "tool-call-parser"
_AUTO: Final = "enable-auto-tool-choice"
_REASONING: Final = "reasoning-parser"
_TEMPLATE_FORMAT: Final = "chat-template-content-format"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserFamily:
    """Models by a pattern of names (behind the slash, lower case), with their answers' parsers."""

    name: str
    pattern: str
    tools: str = ""
    reasoning: str = ""
    content_format: str = ""
    source: str = "recipes"


FAMILIES: Final = (
    ParserFamily(
        name="DeepSeek V4", pattern=r"deepseek-v4-", tools="deepseek_v4", reasoning="deepseek_v4"
    ),
    ParserFamily(
        name="DeepSeek V3.2",
        pattern=r"deepseek-v3\.2$",
        tools="deepseek_v32",
        reasoning="deepseek_v3",
        source="docs",
    ),
    ParserFamily(
        name="DeepSeek V3 and V3.1", pattern=r"deepseek-v3(\.1)?(-|$)", reasoning="deepseek_v3"
    ),
    ParserFamily(
        name="DeepSeek R1", pattern=r"deepseek-r1", reasoning="deepseek_r1", source="docs"
    ),
    ParserFamily(name="Gemma 4", pattern=r"gemma-4-.*-it", reasoning="gemma4"),
    ParserFamily(
        name="GLM 4.5 and 4.6", pattern=r"glm-4\.[56](-|$)", tools="glm45", reasoning="glm45"
    ),
    ParserFamily(name="GLM 4.7", pattern=r"glm-4\.7(-|$)", tools="glm47", reasoning="glm45"),
    ParserFamily(
        name="GLM 5",
        pattern=r"glm-5(\.1)?(-|$)",
        tools="glm47",
        reasoning="glm45",
        content_format="string",
    ),
    ParserFamily(name="gpt-oss", pattern=r"gpt-oss-\d", tools="openai", source="docs"),
    ParserFamily(name="Hy3", pattern=r"hy3-", tools="hy_v3", reasoning="hy_v3"),
    ParserFamily(name="Intern-S2", pattern=r"intern-s2-", tools="qwen3_coder", reasoning="qwen3"),
    ParserFamily(
        name="Kimi K2, those that think",
        pattern=r"kimi-k2(-thinking|\.5)",
        tools="kimi_k2",
        reasoning="kimi_k2",
    ),
    ParserFamily(name="Kimi K2", pattern=r"kimi-k2-instruct", tools="kimi_k2", source="docs"),
    ParserFamily(name="Laguna", pattern=r"laguna-", tools="poolside_v1", reasoning="poolside_v1"),
    ParserFamily(name="LFM2.5", pattern=r"lfm2\.5-", tools="lfm2"),
    ParserFamily(name="Ling 3", pattern=r"ling-3\.", tools="ling3", reasoning="ling3"),
    ParserFamily(name="Macaron V1", pattern=r"macaron-v1-", tools="glm47", reasoning="glm45"),
    ParserFamily(
        name="Mellum 2, those that think",
        pattern=r"mellum2-.*-thinking",
        tools="hermes",
        reasoning="qwen3",
    ),
    ParserFamily(name="Mellum 2", pattern=r"mellum2-.*-instruct", tools="hermes"),
    ParserFamily(name="MiMo V2.5", pattern=r"mimo-v2\.5", tools="mimo", reasoning="mimo"),
    ParserFamily(
        name="MiMo V2 Flash", pattern=r"mimo-v2-flash", tools="qwen3_xml", reasoning="qwen3"
    ),
    ParserFamily(
        name="MiniMax M2", pattern=r"minimax-m2", tools="minimax_m2", reasoning="minimax_m2"
    ),
    ParserFamily(
        name="MiniMax M3", pattern=r"minimax-m3", tools="minimax_m3", reasoning="minimax_m3"
    ),
    ParserFamily(
        name="Nemotron 3 Super and 3.5",
        pattern=r"nvidia-nemotron-3(-super|\.5)-",
        tools="qwen3_xml",
        reasoning="nemotron_v3",
    ),
    ParserFamily(
        name="Nemotron 3 Nano Omni",
        pattern=r"nemotron-3-nano-omni-",
        tools="qwen3_coder",
        reasoning="nemotron_v3",
    ),
    ParserFamily(
        name="Qwen2.5", pattern=r"qwen2\.5-\d[^-]*-instruct", tools="hermes", source="docs"
    ),
    ParserFamily(name="Qwen3.5", pattern=r"qwen3\.5-\d", tools="qwen3_coder", reasoning="qwen3"),
    ParserFamily(name="Qwen3 Coder", pattern=r"qwen3-coder-", tools="qwen3_coder", source="docs"),
    ParserFamily(
        name="Qwen3, those that do not think",
        pattern=r"qwen3-\d.*-instruct",
        tools="hermes",
        source="docs",
    ),
    ParserFamily(name="Qwen3", pattern=r"qwen3-\d", tools="hermes", reasoning="qwen3"),
)
"""The first that a name begins with counts."""

_BASE: Final = re.compile(r"(^|[-_])base([-_]|$)")
"""Names of models that are trained to go on with a text, not to answer."""


def family_of(model_id: str) -> ParserFamily | None:
    """Return the family of a model's id, None if unknown, or if the model is not made to answer.

    >>> [
    ...     found and found.name
    ...     for found in map(
    ...         family_of, ("acme/GLM-4.7-FP8", "zai-org/GLM-4.5-Air-Base", "acme/own")
    ...     )
    ... ]
    ['GLM 4.7', None, None]
    """
    name = model_id.rpartition("/")[2].lower()
    return (
        None
        if _BASE.search(name)
        else next((each for each in FAMILIES if re.match(each.pattern, name)), None)
    )


def family_arguments(
    model_id: str, version: str, arguments: Mapping[str, object]
) -> Mapping[str, object]:
    """Return the arguments for a model's family, without options set in the user's ``arguments``.

    A version gets none that it does not know, and none at all without a list of its options.
    """
    found, table = family_of(model_id), option_table(version, RULES.tables)
    if found is None or table is None:
        return {}
    said = {canonical(name) for name in arguments}
    return {
        name: value
        for group in _groups(found)
        if said.isdisjoint(group)
        for name, value in group.items()
        # Together or not at all: vLLM refuses automatic tool choice without a parser.
        if all(
            option in table and (table[option].switch or told in table[option].choices)
            for option, told in group.items()
        )
    }


def _groups(family: ParserFamily) -> Iterator[Mapping[str, object]]:
    if family.tools:
        yield {_AUTO: True, _TOOLS: family.tools}
    if family.reasoning:
        yield {_REASONING: family.reasoning}
    if family.content_format:
        yield {_TEMPLATE_FORMAT: family.content_format}
