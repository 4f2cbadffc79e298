"""``spec.workload``: the load that the plan is made for, and what the engine drafts ahead of it."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from shardwright.api.model import COMMIT, MODEL_ID, ClaimWeights
from shardwright.api.parts import Part, Tokens

Percent = Annotated[int, Field(ge=0, le=100)]


class Drafting(Part):
    """What every way to draft tokens has."""

    draft_tokens: Annotated[int, Field(ge=1, le=16)] = Field(
        description="Tokens that are drafted and verified in every step."
    )
    acceptance_percent: Percent = Field(
        description="Chance that a drafted token is accepted, after all before it were; planned "
        "with, "
        "measure it."
    )


class PromptLookup(Drafting):
    """Speculative decoding without a draft model: the engine drafts tokens by looking them up in
    the prompt.
    """


class DraftModel(Drafting):
    """Speculative decoding by a second, small model of the same vocabulary: its weights from the
    hub or a claim.
    """

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the draft model. Its architecture comes from the built-in "
        "catalogue unless config gives "
        "it."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="The draft model's config.json itself.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    revision: (
        Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] | None
    ) = Field(
        default=None,
        description="Commit of the draft model's repository, 40 hexadecimal digits: downloaded "
        "from "
        "the hub before the engine "
        "starts, with the token of weights.huggingFace where there is one. Excludes pvc.",
    )
    pvc: ClaimWeights | None = Field(
        default=None,
        description="Read the draft model from a PersistentVolumeClaim. Excludes revision.",
    )


class KvOffload(Part):
    """K/V of prompts that were computed before, kept in the memory of the node beside what the GPUs
    keep.
    """

    host_memory: Annotated[
        str,
        StringConstraints(max_length=16, pattern=r"^(Auto|[1-9][0-9]{0,5}(Gi|Ti))$"),
    ] = Field(
        default="Auto",
        description="Memory of its node for each pod, as 256Gi, beside what the engine's processes "
        "need. Auto: what the nodes of "
        "the plan have left for a pod.",
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
        "Default: what the cost model "
        "assumes.",
    )
    prompt_lookup: PromptLookup | None = Field(
        default=None,
        description="Speculative decoding by looking drafts up in the prompt; the engine is "
        "started "
        "with it.",
    )
    draft_model: DraftModel | None = Field(
        default=None,
        description="Speculative decoding by a draft model; the engine is started with it. Its "
        "weights, its K/V and its own "
        "passes are planned with; the model is not cut into pipeline stages then. Excludes "
        "promptLookup. For vLLM.",
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest request, prompt and answer together, in tokens. Default: inputTokens "
        "+ "
        "outputTokens rounded up "
        "to 1024, never above the model's own limit.",
    )
    kv_cache_quantization: Literal["Auto", "FP8"] = Field(
        default="Auto",
        description="How the K/V cache is held. Auto: as the model computes. FP8: one byte per "
        "element.",
    )
    kv_offload: KvOffload | None = Field(
        default=None,
        description="Keep K/V that the GPUs have no room for in the memory of the nodes, so that "
        "prompts that come again are not "
        "computed again. Pods request it. For vLLM.",
    )


def drafting_of(workload: Workload) -> Drafting | None:
    """Return how tokens are drafted, None where they are not."""
    return workload.prompt_lookup or workload.draft_model


def request_fits_model_length(workload: Workload) -> bool:
    """Return whether the longest request is as long as the mean one."""
    return (
        workload.max_model_len is None
        or workload.max_model_len >= workload.input_tokens + workload.output_tokens
    )


def one_way_of_arrival(workload: Workload) -> bool:
    """Return whether it is said once how requests arrive."""
    return workload.concurrency is None or workload.requests_per_second is None


def one_way_of_drafting(workload: Workload) -> bool:
    """Return whether tokens are drafted in one way at most."""
    return workload.prompt_lookup is None or workload.draft_model is None


def has_one_source_of_draft(draft: DraftModel) -> bool:
    """Return whether the draft model comes from exactly one place."""
    return (draft.revision is None) != (draft.pvc is None)
