"""``spec.model``: what is served, and where its weights come from."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import DataKey, ObjectName, Part

MODEL_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?$"
SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
STORAGE = r"^[1-9][0-9]{0,14}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
FOLDER = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"


class ConfigMapReference(Part):
    """A key of a ConfigMap in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the ConfigMap, in the namespace of this resource.")
    key: DataKey = Field(default="config.json", description="Key whose text is the model's config.json.")


class SecretReference(Part):
    """A key of a Secret in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the Secret, in the namespace of this resource.")
    key: DataKey = Field(default="token", description="Key that holds the access token.")


class WeightCache(Part):
    """A PersistentVolumeClaim that keeps what was downloaded, and the engine's compiled kernels: exactly one of two kinds."""

    claim_name: ObjectName | None = Field(
        default=None,
        description="A claim of the namespace that all pods share: one of them downloads, the others wait. A model on several "
        "nodes needs one that many nodes can mount.",
    )
    storage: Annotated[str, StringConstraints(max_length=32, pattern=STORAGE)] | None = Field(
        default=None,
        description="Size of a claim of its own for every pod, as 900Gi; kept over restarts, deleted with the model. It cannot "
        "be changed afterwards.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None, description="StorageClass of the pods' own claims. Default: the cluster's."
    )


class HuggingFaceWeights(Part):
    """Weights from the Hugging Face hub."""

    token_secret_ref: SecretReference | None = Field(
        default=None,
        description="Secret with the access token for gated models. Only the kubelet reads it, never the operator.",
    )
    cache: WeightCache | None = Field(
        default=None,
        description="Where downloads are kept. The pod downloads before its engine starts, the engine then runs offline. "
        "Default: nowhere, every start of a group downloads anew.",
    )


class ClaimWeights(Part):
    """Weights on a PersistentVolumeClaim."""

    claim_name: ObjectName = Field(description="PersistentVolumeClaim in the namespace of this resource.")
    path: Annotated[str, StringConstraints(max_length=1024, pattern=FOLDER)] | None = Field(
        default=None,
        description="Folder on the claim that holds the weights and tokenizer, relative to its root. Default: the root.",
    )


class Weights(Part):
    """Where the weights come from: exactly one of the fields."""

    hugging_face: HuggingFaceWeights | None = Field(
        default=None, description="Download from the Hugging Face hub by spec.model.id (the default)."
    )
    pvc: ClaimWeights | None = Field(default=None, description="Read from a PersistentVolumeClaim; the engine then runs offline.")


class Model(Part):
    """What is served."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Hugging Face id of the model; also the name under which it is served. Its architecture comes from the "
        "built-in catalogue unless config or configMapRef gives it."
    )
    served_name: Annotated[str, StringConstraints(max_length=193, pattern=SERVED_NAME)] | None = Field(
        default=None, description="Name that clients ask for. Default: the id."
    )
    config: dict[str, Any] | None = Field(
        default=None,
        max_length=256,
        description="The model's config.json itself. Excludes configMapRef.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    config_map_ref: ConfigMapReference | None = Field(
        default=None, description="ConfigMap that holds the model's config.json; watched. Excludes config."
    )
    revision: Annotated[str, StringConstraints(max_length=40, pattern=r"^[0-9a-f]{40}$")] | None = Field(
        default=None, description="Commit of the model repository to serve: 40 hexadecimal digits."
    )
    weights: Weights | None = Field(
        default=None, description="Where the weights come from. Default: the Hugging Face hub, without a token."
    )
    load_format: Literal["Auto", "Safetensors", "FastSafetensors", "RunAIStreamer", "ShardedState"] = Field(
        default="Auto",
        description="How the engine reads the weights. Auto: as it sees fit. FastSafetensors, RunAIStreamer: by these packages, "
        "which the image must have. ShardedState: files that were written by the same tensor degree, on a claim.",
    )
    quantization: Literal["Auto", "BF16", "FP16", "FP8"] = Field(
        default="Auto",
        description="How the engine holds the weights. Auto: as they are stored. BF16, FP16: computed and held in that "
        "type. FP8: quantized while loading.",
    )
