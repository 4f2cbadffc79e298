"""``spec.engine``: the engine, its requests and K/V, drafts, options, environment and executor.

``engines.options`` checks which options an engine has and who may set them.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import IMAGE, ArgumentValue, DataKey, ObjectName, Part, Tokens
from shardwright.api.weights import MODEL_ID, PartUri
from shardwright.engines.environment import is_admissible

Executor = Literal["Native", "Ray"]
"""Who joins the ranks of a group over several nodes."""


OF_ONE_MODEL: Final = ("maxModelLen", "kvCacheQuantization", "kvOffload", "speculation")
"""Fields of ``spec.engine`` that have no default for all models: they go with one, and its load."""


class EnvironmentVariable(Part):
    """One environment variable of the engine container."""

    name: Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = (
        Field(
            description="Name of the variable: a setting of the engine "
            "or its libraries that is listed, or that the administrator "
            "admits. Those that the operator sets itself are refused."
        )
    )
    value: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")] = Field(
        default="", description="Value, taken literally: $(NAME) is not expanded."
    )


class ApiKeyReference(Part):
    """A key of a Secret in the same namespace, whose value clients must bring."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the Secret, in the namespace of this resource.")
    key: DataKey = Field(
        default="api-key",
        description="Key that holds the API key: ASCII without spaces or line breaks.",
    )


class DraftHead(Part):
    """A model or a head beside the served model: its config, and the address of its weights."""

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
    uri: PartUri = Field(
        description="Address of its weights. hf://ID@COMMIT is downloaded from the hub before the "
        "engine starts, with the token of weights.secretRef, if any. pvc://CLAIM/PATH is read from "
        "a PersistentVolumeClaim of the namespace."
    )


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
    acceptance_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="Chance that a drafted token is accepted, after all before it were; planned "
        "with, measure it. Default: assumed by method, with a wider band.",
    )
    head: DraftHead | None = Field(
        default=None, description="The head or model that drafts, of EAGLE3 and DraftModel."
    )


class KvOffload(Part):
    """K/V of prompts that were computed before, kept in the memory of the node beside the K/V cache
    of the GPUs.
    """

    host_memory: Annotated[
        str, StringConstraints(max_length=16, pattern=r"^(Auto|[1-9][0-9]{0,5}(Gi|Ti))$")
    ] = Field(
        default="Auto",
        description="Memory of its node for each pod, as 256Gi, besides that of the engine's "
        "processes. Auto: the memory that the nodes of the plan have left for a pod.",
    )


class Engine(Part):
    """The inference engine."""

    name: Literal["vLLM", "TensorRTLLM"] = Field(
        default="vLLM",
        description="Engine that serves the model. TensorRTLLM needs an image, and NVIDIA GPUs.",
    )
    image: Annotated[str, StringConstraints(max_length=512, pattern=IMAGE)] | None = Field(
        default=None,
        description="Container image. Default: vLLM's own release image "
        "of the version, for AMD's GPUs vllm/vllm-openai-rocm. One of "
        "TensorRT-LLM must hold sshd for a model on several nodes.",
    )
    version: (
        Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] | None
    ) = Field(
        default=None,
        description="Engine version in the image, as 0.33.0. Plans and arguments "
        "are checked against its rules. Default: the newest version that is known.",
    )
    args: dict[str, ArgumentValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Engine options without leading dashes, with typed values, as "
        "enable-prefix-caching: false. Options that "
        "the plan decides, or that open the server or the node, are refused; true sets a switch "
        "and false its negative.",
        json_schema_extra={"x-kubernetes-map-type": "granular"},
    )
    family_defaults: Literal["Auto", "None"] | None = Field(
        default=None,
        description="With vLLM: whether it is told the parsers of tool calls and of reasoning that "
        "the model's family wants, "
        "if args do not set them. Auto: it is, if the family is known; None: it is not. "
        "Default: Auto.",
    )
    executor: Executor | None = Field(
        default=None,
        description="With vLLM: who joins the ranks of a group over several nodes. Native: the "
        "engine itself. Ray: a Ray cluster of the group's own, for those who need one; the "
        "image must have Ray in it. Groups of one node are the same with both. Default: Native.",
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest request, prompt and answer together, in tokens; longer ones "
        "are refused. Default: as long as model and K/V cache hold where that costs no GPU and "
        "keeps none of the load waiting, at least workload.inputTokens + outputTokens.",
    )
    kv_cache_quantization: Literal["Auto", "FP8"] | None = Field(
        default=None,
        description="How the K/V cache is held. Auto: as "
        "the model computes. FP8: one byte per element. Default: Auto.",
    )
    kv_offload: KvOffload | None = Field(
        default=None,
        description="Keep K/V that the GPUs have no room for in the memory of the nodes, so that "
        "prompts that come again are not "
        "computed again. Pods request it. For vLLM.",
    )
    speculation: Speculation | None = Field(
        default=None,
        description="Speculative decoding; the engine is started with it, and the plan counts the "
        "weights, K/V and passes of the drafter. For vLLM.",
    )
    api_key_secret_ref: ApiKeyReference | None = Field(
        default=None,
        description="With vLLM: Secret with the API key that clients must send "
        "(Authorization: Bearer ...). Only the kubelet reads it, never the operator; pods "
        "get it when they start. Default: everybody who reaches the Service is served.",
    )
    env: list[EnvironmentVariable] = Field(
        default_factory=list,
        max_length=64,
        description="Environment variables of the engine.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


def may_be_set(variable: EnvironmentVariable) -> bool:
    """Return whether an administrator may at least admit a variable."""
    return is_admissible(variable.name)


def ray_is_for_vllm(engine: Engine) -> bool:
    """Return whether Ray is asked only of the engine that it is rendered for."""
    return engine.executor != "Ray" or engine.name == "vLLM"


def has_a_head_where_one_drafts(speculation: Speculation) -> bool:
    """Return whether a head is given if the method has one, and none if it has not."""
    return (speculation.head is not None) == (speculation.method in ("EAGLE3", "DraftModel"))
