"""``spec.workload``: the load that the plan is made for, and the tokens that the engine drafts.

A load is made of means: how lengths and arrivals vary is not said.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from shardwright.api.model import COMMIT, MODEL_ID, ClaimWeights
from shardwright.api.parts import Part, Tokens

Percent = Annotated[int, Field(ge=0, le=100)]


class Drafting(Part):
    """The fields of every way to draft tokens."""

    draft_tokens: Annotated[int, Field(ge=1, le=16)] = Field(
        description="Tokens that are drafted and verified in every step."
    )
    acceptance_percent: Percent = Field(
        description="Chance that a drafted token is accepted, "
        "after all before it were; planned with, measure it."
    )


class PromptLookup(Drafting):
    """Speculative decoding without a draft model: the engine drafts tokens by looking them up in
    the prompt.
    """


class DraftHead(Part):
    """A model or a head beside the served model: its config, and the source of its weights."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the draft model or head. The architecture of a draft "
        "model comes from the built-in catalogue unless config gives it."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="Its config.json itself.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    revision: (
        Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] | None
    ) = Field(
        default=None,
        description="Commit of its repository, 40 hexadecimal digits: downloaded from the hub "
        "before the engine starts, with the token of weights.huggingFace, if any. "
        "Excludes pvc.",
    )
    pvc: ClaimWeights | None = Field(
        default=None,
        description="Read it from a PersistentVolumeClaim. Excludes revision.",
    )


class DraftModel(DraftHead, Drafting):
    """Speculative decoding by a second, small model of the same vocabulary: its weights from the
    hub or a claim.
    """


class Speculation(Part):
    """Tokens that are drafted ahead, and verified by the model in one step."""

    method: Literal["MTP", "EAGLE3", "DraftModel", "PromptLookup"] = Field(
        description="The drafter. MTP: layers of the model's own "
        "checkpoint. EAGLE3: a head that was trained for it. DraftModel: "
        "a small model of the same vocabulary. PromptLookup: the prompt."
    )
    tokens: Annotated[int, Field(ge=1, le=16)] | None = Field(
        default=None,
        description="Tokens that are drafted and verified in every step. Default: what serves "
        "most at the load.",
    )
    acceptance_percent: Percent | None = Field(
        default=None,
        description="Chance that a drafted token is accepted, after all before it were; planned "
        "with, measure it. Default: assumed by method, with a wider band.",
    )
    head: DraftHead | None = Field(
        default=None,
        description="The head or model that drafts, of EAGLE3 and DraftModel.",
    )


class KvOffload(Part):
    """K/V of prompts that were computed before, kept in the memory of the node beside the K/V cache
    of the GPUs.
    """

    host_memory: Annotated[
        str,
        StringConstraints(max_length=16, pattern=r"^(Auto|[1-9][0-9]{0,5}(Gi|Ti))$"),
    ] = Field(
        default="Auto",
        description="Memory of its node for each pod, as 256Gi, besides that of the engine's "
        "processes. Auto: the memory that the nodes of the plan have left for a pod.",
    )


class Workload(Part):
    """The load that the plan is made for."""

    input_tokens: Tokens = Field(
        default=2048, description="Mean prompt length in tokens."
    )
    output_tokens: Tokens = Field(
        default=512, description="Mean answer length in tokens."
    )
    concurrency: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description="Requests in flight at once, over all replicas. Default: 64, unless "
        "requestsPerSecond is set.",
    )
    requests_per_second: (
        Annotated[float, Field(ge=0.001, le=100_000, allow_inf_nan=False)] | None
    ) = Field(
        default=None,
        description="Requests that arrive per second, over all replicas, instead of concurrency: a "
        "plan carries them when it "
        "serves as many.",
    )
    prefix_cache_hit_percent: Annotated[int, Field(ge=0, le=99)] = Field(
        default=0,
        description="Share of the input tokens whose K/V the prefix cache still has, in percent.",
    )
    expert_imbalance_percent: Annotated[int, Field(ge=100, le=1000)] | None = Field(
        default=None,
        description="Work of the busiest rank of an expert-parallel group, in percent of the mean. "
        "Default: as the cost model assumes.",
    )
    speculation: Speculation | None = Field(
        default=None,
        description="Speculative decoding; the engine is started with it, and the plan counts the "
        "weights, K/V and passes of the drafter. Excludes promptLookup and draftModel. For vLLM.",
    )
    prompt_lookup: PromptLookup | None = Field(
        default=None,
        description="Older name of speculation by method PromptLookup.",
    )
    draft_model: DraftModel | None = Field(
        default=None,
        description="Older name of speculation by method DraftModel. Excludes promptLookup.",
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest request, prompt and answer together, in tokens. Default: "
        "inputTokens + outputTokens rounded up to 1024, never above the model's own limit.",
    )
    kv_cache_quantization: Literal["Auto", "FP8"] = Field(
        default="Auto",
        description="How the K/V cache is held. Auto: as "
        "the model computes. FP8: one byte per element.",
    )
    kv_offload: KvOffload | None = Field(
        default=None,
        description="Keep K/V that the GPUs have no room for in the memory of the nodes, so that "
        "prompts that come again are not "
        "computed again. Pods request it. For vLLM.",
    )


def speculation_of(workload: Workload) -> Speculation | None:
    """Return how tokens are drafted, None if they are not.

    This is the one place that makes the newer field of the two older ones; nothing else reads them.
    """
    lookup, draft = workload.prompt_lookup, workload.draft_model
    if lookup is not None:
        return Speculation(
            method="PromptLookup",
            tokens=lookup.draft_tokens,
            acceptance_percent=lookup.acceptance_percent,
        )
    if draft is not None:
        return Speculation(
            method="DraftModel",
            tokens=draft.draft_tokens,
            acceptance_percent=draft.acceptance_percent,
            head=draft,
        )
    return engine.speculation


def head_of(workload: Workload) -> DraftHead | None:
    """Return the model or head that drafts, None if none does."""
    speculation = speculation_of(workload)
    return speculation.head if speculation else None


def speculation_path(workload: Workload) -> str:
    """Return the path of the field that says how tokens are drafted."""
    if workload.prompt_lookup is not None:
        return "spec.workload.promptLookup"
    return "spec.workload." + (
        "speculation" if workload.draft_model is None else "draftModel"
    )


def head_path(workload: Workload) -> str:
    """Return the path of the field that says which model or head drafts."""
    path = speculation_path(workload)
    return path if workload.draft_model is not None else f"{path}.head"


def request_fits_model_length(workload: Workload) -> bool:
    """Return whether the longest request is as long as the mean one."""
    return (
        workload.max_model_len is None
        or workload.max_model_len >= workload.input_tokens + workload.output_tokens
    )


def lengths_in_figures(workload: Workload) -> str:
    """Return the lengths that do not go together, in their numbers."""
    inputs, outputs = workload.input_tokens, workload.output_tokens
    return (
        f"{workload.max_model_len:,} must be at least {inputs + outputs:,} "
        f"(inputTokens {inputs:,} + outputTokens {outputs:,}); raise maxModelLen or lower the "
        "other two"
    )


def one_way_of_arrival(workload: Workload) -> bool:
    """Return whether it is said once how requests arrive."""
    return workload.concurrency is None or workload.requests_per_second is None


def one_way_of_drafting(workload: Workload) -> bool:
    """Return whether tokens are drafted in one way at most."""
    ways = (engine.speculation, workload.prompt_lookup, workload.draft_model)
    return sum(way is not None for way in ways) <= 1


def has_one_source_of_draft(draft: DraftHead) -> bool:
    """Return whether a draft model or head has exactly one source."""
    return (draft.revision is None) != (draft.pvc is None)


def has_a_head_where_one_drafts(speculation: Speculation) -> bool:
    """Return whether a head is given if the method has one, and none if it has not."""
    return (speculation.head is not None) == (
        speculation.method in ("EAGLE3", "DraftModel")
    )
