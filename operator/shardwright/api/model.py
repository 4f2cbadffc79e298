"""``spec.model``: the model to serve, and the source of its weights.

Whether a model, a file or a Secret is there at all is not asked here.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.object_store import ObjectStoreWeights
from shardwright.api.parts import IMAGE, DataKey, ObjectName, Part, unsaid
from shardwright.engines.serving import DEFAULT_ADAPTER_RANK

MODEL_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?$"
SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
COMMIT = r"^[0-9a-f]{40}$"
STORAGE = r"^[1-9][0-9]{0,14}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
FOLDER = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"


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


class SecretReference(Part):
    """A key of a Secret in the same namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(
        description="Name of the Secret, in the namespace of this resource."
    )
    key: DataKey = Field(
        default="token", description="Key that holds the access token."
    )


class WeightCache(Part):
    """A PersistentVolumeClaim that keeps the downloads and the engine's compiled kernels: exactly
    one of two kinds.
    """

    claim_name: ObjectName | None = Field(
        default=None,
        description="A claim of the namespace that all pods share: one of them downloads, "
        "the others wait. A model on several nodes needs one that many nodes can mount.",
    )
    storage: (
        Annotated[str, StringConstraints(max_length=32, pattern=STORAGE)] | None
    ) = Field(
        default=None,
        description="Size of a claim of its own for every pod, as 900Gi; kept over restarts, "
        "deleted with the model. It can be set, changed and removed while spec.replicas is 0.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None,
        description="StorageClass of the pods' own claims, which is changed as their size is. "
        "Default: the cluster's.",
    )


class HuggingFaceWeights(Part):
    """Weights from the Hugging Face hub."""

    token_secret_ref: SecretReference | None = Field(
        default=None,
        description="Secret with the access token for gated "
        "models. Only the kubelet reads it, never the operator.",
    )
    cache: WeightCache | None = Field(
        default=None,
        description="A claim that keeps downloads. The pod downloads before its engine starts, the "
        "engine then runs offline. Default: none, every start of a group downloads anew.",
    )


class ClaimWeights(Part):
    """Weights on a PersistentVolumeClaim."""

    claim_name: ObjectName = Field(
        description="PersistentVolumeClaim in the namespace of this resource."
    )
    path: Annotated[str, StringConstraints(max_length=1024, pattern=FOLDER)] | None = (
        Field(
            default=None,
            description="Folder on the claim that holds the weights and tokenizer, relative to its "
            "root. Default: the root.",
        )
    )


class ImageWeights(Part):
    """Weights in an OCI image or artifact that the kubelet pulls and mounts: an image volume."""

    reference: Annotated[str, StringConstraints(max_length=512, pattern=IMAGE)] = Field(
        description="The image or artifact; a digest (@sha256:...) pins it. It is pulled with "
        "pod.imagePullSecrets."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="When a node pulls it. Default: Kubernetes' "
        "own, IfNotPresent, but Always of the tag latest.",
    )
    path: Annotated[str, StringConstraints(max_length=1024, pattern=FOLDER)] | None = (
        Field(
            default=None,
            description="Folder in the image that holds the weights and tokenizer, relative to its "
            "root. Default: the root.",
        )
    )


class Weights(Part):
    """Source of the weights: exactly one of the fields."""

    hugging_face: HuggingFaceWeights | None = Field(
        default=None,
        description="Download from the Hugging Face hub by spec.model.id (the default).",
    )
    pvc: ClaimWeights | None = Field(
        default=None,
        description="Read from a PersistentVolumeClaim; the engine then runs offline.",
    )
    image: ImageWeights | None = Field(
        default=None,
        description="Read from an image volume; the engine then runs "
        "offline. Needs the feature gate ImageVolume (on by default "
        "from Kubernetes 1.35) and a container runtime that has it.",
    )
    object_store: ObjectStoreWeights | None = Field(
        default=None,
        description="Streamed by the engine from a bucket at every start, with the configuration "
        "and the tokenizer; it then never asks the hub. Needs Run:ai's streamer in the image.",
    )


class HubAdapter(Part):
    """An adapter in a repository of the Hugging Face hub."""

    id: Annotated[str, StringConstraints(max_length=193, pattern=MODEL_ID)] = Field(
        description="Id of the adapter's repository."
    )
    revision: Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] = Field(
        description="Commit of the repository: 40 hexadecimal digits."
    )


class Adapter(Part):
    """A LoRA adapter that is served under its own name: exactly one of pvc and huggingFace."""

    name: ServedName = Field(
        description="Name that clients ask for; not that of the model."
    )
    pvc: ClaimWeights | None = Field(
        default=None, description="Read from a PersistentVolumeClaim."
    )
    hugging_face: HubAdapter | None = Field(
        default=None,
        description="Downloaded from the hub before the engine starts, with the token of "
        "weights.huggingFace if there is one.",
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
    revision: (
        Annotated[str, StringConstraints(max_length=40, pattern=COMMIT)] | None
    ) = Field(
        default=None,
        description="Commit of the model repository to serve: 40 hexadecimal digits.",
    )
    weights: Weights | None = Field(
        default=None,
        description="Source of the weights. Default: the Hugging Face hub, without a token.",
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
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    max_adapter_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] | None = Field(
        default=None,
        description="Largest rank of an adapter: every slot is as large as one of this rank. "
        f"Default with adapters: {DEFAULT_ADAPTER_RANK}.",
    )


def has_one_source_of_config(model: Model) -> bool:
    """Return whether the config is said once."""
    return model.config is None or model.config_map_ref is None


def revision_is_of_the_hub(model: Model) -> bool:
    """Return whether a commit is named of weights from the hub alone."""
    return (
        model.revision is None or model.weights is None or _is_on_the_hub(model.weights)
    )


def has_one_source_of_weights(weights: Weights) -> bool:
    """Return whether exactly one source is given."""
    given = (weights.hugging_face, weights.pvc, weights.image, weights.object_store)
    return sum(source is not None for source in given) == 1


def has_one_kind_of_cache(cache: WeightCache) -> bool:
    """Return whether the cache is either a claim or a size."""
    return (cache.claim_name is None) != (cache.storage is None)


def class_is_of_own_claims(cache: WeightCache) -> bool:
    """Return whether a storage class is given to claims that are made alone."""
    return cache.storage_class_name is None or cache.storage is not None


def shards_lie_where_they_can(model: Model) -> bool:
    """Return whether files of single ranks come from a claim or an image: nothing else has them."""
    weights = model.weights or unsaid(Weights)
    return model.load_format != "ShardedState" or bool(weights.pvc or weights.image)


def store_is_streamed(model: Model) -> bool:
    """Return whether an object store is read by a loader that can read one."""
    stored = model.weights is not None and model.weights.object_store is not None
    return not stored or model.load_format in ("Auto", "RunAIStreamer")


def _is_on_the_hub(weights: Weights) -> bool:
    return not (weights.pvc or weights.image or weights.object_store)


def has_one_source_of_adapter(adapter: Adapter) -> bool:
    """Return whether exactly one source is given."""
    return (adapter.pvc is None) != (adapter.hugging_face is None)


def adapters_have_names_of_their_own(model: Model) -> bool:
    """Return whether no adapter has the name of the model."""
    return all(
        adapter.name != (model.served_name or model.id) for adapter in model.adapters
    )


def rank_is_of_adapters(model: Model) -> bool:
    """Return whether a rank is given only beside adapters."""
    return model.max_adapter_rank is None or bool(model.adapters)
