"""``spec.engine``: the inference engine, its options and environment, and the program that joins
its ranks.

Which options an engine has, and who may set them, is not asked here: ``engines.options`` does.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import IMAGE, ArgumentValue, DataKey, ObjectName, Part
from shardwright.engines.environment import is_admissible

Executor = Literal["Native", "Ray"]
"""Who joins the ranks of a group over several nodes."""


class EnvironmentVariable(Part):
    """One environment variable of the engine container."""

    name: Annotated[
        str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    ] = Field(
        description="Name of the variable: a setting of the engine "
        "or its libraries that is listed, or that the administrator "
        "admits. Those that the operator sets itself are refused."
    )
    value: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")] = (
        Field(
            default="", description="Value, taken literally: $(NAME) is not expanded."
        )
    )


class ApiKeyReference(Part):
    """A key of a Secret in the same namespace, whose value clients must bring."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(
        description="Name of the Secret, in the namespace of this resource."
    )
    key: DataKey = Field(
        default="api-key",
        description="Key that holds the API key: ASCII without spaces or line breaks.",
    )


class Engine(Part):
    """The inference engine."""

    name: Literal["vLLM", "TensorRTLLM"] = Field(
        default="vLLM",
        description="Engine that serves the model. TensorRTLLM needs an image, and NVIDIA GPUs.",
    )
    image: Annotated[str, StringConstraints(max_length=512, pattern=IMAGE)] | None = (
        Field(
            default=None,
            description="Container image. Default: vLLM's own release image "
            "of the version, for AMD's GPUs vllm/vllm-openai-rocm. One of "
            "TensorRT-LLM must hold sshd for a model on several nodes.",
        )
    )
    version: (
        Annotated[
            str, StringConstraints(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
        ]
        | None
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
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )


def may_be_set(variable: EnvironmentVariable) -> bool:
    """Return whether a variable is one that an administrator may at least admit."""
    return is_admissible(variable.name)


def ray_is_for_vllm(engine: Engine) -> bool:
    """Return whether Ray is asked only of the engine that it is rendered for."""
    return engine.executor != "Ray" or engine.name == "vLLM"
