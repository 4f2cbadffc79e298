"""``spec.model``: the model to serve, the address of its weights, and adapters."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import DataKey, ObjectName, Part
from shardwright.api.weights import (
    BUCKETS,
    CLAIM,
    COMMIT,
    HUB,
    IMAGE_VOLUME,
    MODEL_ID,
    PartUri,
    Weights,
    place_of,
    scheme_of,
)
from shardwright.engines.serving import DEFAULT_ADAPTER_RANK

SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"

ServedName = Annotated[str, StringConstraints(max_length=193, pattern=SERVED_NAME)]


class ConfigMapReference(Part):
    """A key of a ConfigMap in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(
        description="Name of the ConfigMap, in the namespace of this resource."
    )
    key: DataKey = Field(
        default="config.json", description="Key whose text is the model's config.json."
    )


class Adapter(Part):
    """A LoRA adapter that is served under its own name."""

    name: ServedName = Field(description="Name that clients ask for; not that of the model.")
    uri: PartUri = Field(
        description="Address of the adapter. hf://ID@COMMIT is downloaded from the hub before the "
        "engine starts, with the token of weights.secretRef if there is one. pvc://CLAIM/PATH is "
        "read from a PersistentVolumeClaim of the namespace."
    )


class Model(Part):
    """The model to serve."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the model; also the name under which it "
        "is served. Its architecture comes from the built-in catalogue unless "
        "config or configMapRef gives it, or a Job has read it from the hub."
    )
    served_name: ServedName | None = Field(
        default=None, description="Name that clients ask for. Default: the id."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="The model's config.json itself. Excludes configMapRef.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    config_map_ref: ConfigMapReference | None = Field(
        default=None,
        description="ConfigMap that holds the model's config.json; watched. Excludes config.",
    )
    revision: Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] | None = Field(
        default=None, description="Commit of the model repository to serve: 40 hexadecimal digits."
    )
    weights: Weights | None = Field(
        default=None,
        description="Address of the weights. Default: the Hugging Face hub, without a token.",
    )
    load_format: Literal[
        "Auto", "Safetensors", "FastSafetensors", "RunAIStreamer", "ShardedState"
    ] = Field(
        default="Auto",
        description="How the engine reads the weights. Auto: as it sees fit. FastSafetensors, "
        "RunAIStreamer: by these packages, "
        "which the image must have. ShardedState: files that were written by the same tensor "
        "degree, on a claim or in an image.",
    )
    quantization: Literal["Auto", "BF16", "FP16", "FP8"] = Field(
        default="Auto",
        description="How the engine holds the weights. Auto: as they are stored. "
        "BF16, FP16: computed and held in that type. FP8: quantized while loading.",
    )
    adapters: list[Adapter] = Field(
        default_factory=list,
        max_length=32,
        description="LoRA adapters that are served beside the model, "
        "each with a slot in GPU memory that the plan counts.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    max_adapter_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] | None = Field(
        default=None,
        description="Largest rank of an adapter: every slot is as large as one of this rank. "
        f"Default with adapters: {DEFAULT_ADAPTER_RANK}.",
    )


def has_one_source_of_config(model: Model) -> bool:
    """Return whether the config is given once."""
    return model.config is None or model.config_map_ref is None


def revision_is_of_the_hub(model: Model) -> bool:
    """Return whether a commit is named only of weights from the hub."""
    return model.revision is None or scheme_of(model.weights) == HUB


def hub_has_the_model(model: Model) -> bool:
    """Return whether an address on the hub is the model's."""
    uri = model.weights.uri if model.weights else None
    return not uri or scheme_of(model.weights) != HUB or place_of(uri) == model.id


def shards_lie_where_they_can(model: Model) -> bool:
    """Return whether files of single ranks come from a claim or an image, which alone have them."""
    scheme = scheme_of(model.weights)
    return model.load_format != "ShardedState" or scheme in (CLAIM, IMAGE_VOLUME)


def store_is_streamed(model: Model) -> bool:
    """Return whether an object store is read by a loader that can."""
    stored = scheme_of(model.weights) in BUCKETS
    return not stored or model.load_format in ("Auto", "RunAIStreamer")


def adapters_have_names_of_their_own(model: Model) -> bool:
    """Return whether no adapter has the name of the model."""
    return all(adapter.name != (model.served_name or model.id) for adapter in model.adapters)


def rank_is_of_adapters(model: Model) -> bool:
    """Return whether a rank is given only beside adapters."""
    return model.max_adapter_rank is None or bool(model.adapters)
