"""``spec.model.weights``: the address of the weights, and what is needed to read there.

It may be on the Hugging Face hub, a claim, an image, or a store with the API of S3, Google's or
Azure's.
"""

import re
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import DNS_SUBDOMAIN, IMAGE, DataKey, ObjectName, Part, unsaid

HUB, S3, GCS, AZURE, CLAIM, IMAGE_VOLUME = "hf", "s3", "gs", "az", "pvc", "oci"
HUB_KEY: Final = "token"
"""The key of a Secret that holds the token for the hub, if none is named."""
BUCKETS = (S3, GCS, AZURE)

_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
_COMMIT = r"[0-9a-f]{40}"
_FOLDER = r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*"
_ON_CLAIM = rf"pvc://{DNS_SUBDOMAIN[1:-1]}(/{_FOLDER})?"
_IN_BUCKET = (
    r"(s3|gs|az)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
    r"(/[A-Za-z0-9_-][A-Za-z0-9._=+-]*)*"
)
MODEL_ID = rf"^{_ID}$"
COMMIT = rf"^{_COMMIT}$"
FOLDER = rf"^{_FOLDER}$"
WEIGHTS_URI = rf"^(hf://{_ID}|{_IN_BUCKET}|{_ON_CLAIM}|oci://{IMAGE[1:-1]})$"
PART_URI = rf"^(hf://{_ID}@{_COMMIT}|{_ON_CLAIM})$"
FORMS: Final = MappingProxyType(
    {
        WEIGHTS_URI: "hf://ID, s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, "
        "pvc://CLAIM/PATH or oci://IMAGE",
        PART_URI: "hf://ID@COMMIT or pvc://CLAIM/PATH",
    }
)
"""What an address looks like, in words, by its pattern."""

CLAIM_MAX_LENGTH, FOLDER_MAX_LENGTH = 253, 1024
BUCKET_MAX_LENGTH, IMAGE_MAX_LENGTH = 1024, 512
"""Unit: characters, those of a bucket with its scheme."""
URI_MAX_LENGTH = len("pvc://") + CLAIM_MAX_LENGTH + len("/") + FOLDER_MAX_LENGTH
"""The longest of all: one on a claim."""
STORAGE = r"^[1-9][0-9]{0,14}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
ENDPOINT = r"^https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"
REGION = r"^[a-z0-9][a-z0-9-]*$"
ACCOUNT = r"^[a-z0-9]{3,24}$"

AZURE_HOST = "blob.core.windows.net"
"""Where accounts of Azure are; the streamer's own default suffix."""

_COMMERCIAL: Final = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[0-9]+", re.ASCII)
"""Regions of AWS that have the names of buckets in common. Source: ``regionRegex`` of the partition
aws in partitions.json of AWS's SDKs.
"""

_DOMAINS: Final = MappingProxyType({"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"})
"""Where regions of a first word are, all others under amazonaws.com. Source: ``dnsSuffix``."""


PartUri = Annotated[str, StringConstraints(max_length=URI_MAX_LENGTH, pattern=PART_URI)]
"""Address of a head or an adapter."""


class WeightsSecret(Part):
    """A Secret in the same namespace with what the hub or a store wants to see."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(
        description="Name of the Secret. Keys for s3://: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY and, if wanted, AWS_SESSION_TOKEN; for az://: "
        "AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_ACCOUNT_KEY."
    )
    key: DataKey | None = Field(
        default=None, description="Key that holds the access token, for hf://. Default: token."
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
    storage: Annotated[str, StringConstraints(max_length=32, pattern=STORAGE)] | None = Field(
        default=None,
        description="Size of a claim of its own for every pod, as 900Gi; kept over restarts, "
        "deleted with the model. It can be set, changed and removed while spec.replicas is 0.",
    )
    storage_class_name: ObjectName | None = Field(
        default=None,
        description="StorageClass of the pods' own claims, which is changed as their size is. "
        "Default: the cluster's.",
    )


class ImageVolume(Part):
    """How an image with weights is pulled and read."""

    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="When a node pulls it. Default: Kubernetes' "
        "own, IfNotPresent, but Always of the tag latest.",
    )
    path: Annotated[str, StringConstraints(max_length=FOLDER_MAX_LENGTH, pattern=FOLDER)] | None = (
        Field(
            default=None,
            description="Folder in the image that holds the weights and tokenizer, relative to its "
            "root. Default: the root.",
        )
    )


class StoreAuthority(Part):
    """A key of a ConfigMap in the same namespace with certificates to trust."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: DataKey = Field(
        default="ca.crt", description="Key whose text is the bundle of certificates (PEM)."
    )


class StoreOptions(Part):
    """How a bucket of S3, Google Cloud Storage or Azure Blob Storage is read."""

    endpoint: Annotated[str, StringConstraints(max_length=253, pattern=ENDPOINT)] | None = Field(
        default=None,
        description="Another server that speaks S3, as https://minio.example.com:9000. "
        "Default: AWS.",
    )
    region: Annotated[str, StringConstraints(max_length=63, pattern=REGION)] | None = Field(
        default=None, description="Region of the bucket, for s3://."
    )
    addressing: Literal["Path", "VirtualHost"] | None = Field(
        default=None,
        description="Place of the bucket in requests, for s3://: in the path or in the "
        "host. Default: Path with endpoint, else VirtualHost.",
    )
    ca_config_map_ref: StoreAuthority | None = Field(
        default=None,
        description="Certificates by which the endpoint is trusted, for s3://. "
        "Default: those of the image.",
    )
    account: Annotated[str, StringConstraints(max_length=24, pattern=ACCOUNT)] | None = Field(
        default=None, description="Storage account, for az://."
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None, description="Connections of each rank. Default: the streamer's own, 8."
    )
    buffer_gigabytes: Annotated[int, Field(ge=1, le=50)] | None = Field(
        default=None,
        description="Host memory of a pod through which weights are read, in GB; at "
        "least that of the largest tensor. Default: the streamer's own, 40.",
    )
    megabytes_per_second: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None,
        description="Measured speed at which a node reads from the store, in MB/s; the time of a "
        "start follows from it. Default: 1,000, assumed.",
    )


class Weights(Part):
    """The address of the weights, and what is needed to read there."""

    uri: (
        Annotated[str, StringConstraints(max_length=URI_MAX_LENGTH, pattern=WEIGHTS_URI)] | None
    ) = Field(
        default=None,
        description="hf://ID (that of the model), s3://BUCKET/PATH, gs://BUCKET/PATH, "
        "az://CONTAINER/PATH, pvc://CLAIM/PATH or oci://IMAGE: the folder with config.json, the "
        "tokenizer and safetensors. The engine streams a bucket at every start, which needs "
        "Run:ai's streamer in its image. A claim is one of the namespace. An image is pulled with "
        "pod.imagePullSecrets, pinned by a digest (@sha256:...), and mounted, which needs the "
        "feature gate ImageVolume (on by default from Kubernetes 1.35) and a container runtime "
        "that has it. With all but hf:// the engine runs offline. Default: hf:// and the id.",
    )
    secret_ref: WeightsSecret | None = Field(
        default=None,
        description="Secret with the access token of the hub, for gated models, or with the keys "
        "of a store, for s3:// and az://. Only the kubelet reads it, never the operator. Default: "
        "no token; the identity of pod.serviceAccountName.",
    )
    cache: WeightCache | None = Field(
        default=None,
        description="A claim that keeps downloads from the hub. The pod downloads before its "
        "engine starts, the engine then runs offline. Default: none, every start of a group "
        "downloads anew.",
    )
    object_store: StoreOptions | None = Field(
        default=None, description="How a bucket is read, for s3://, gs:// and az://."
    )
    image: ImageVolume | None = Field(default=None, description="How an image is read, for oci://.")


def scheme_of(weights: Weights | None) -> str:
    """Return the scheme of weights' address, the hub's if none is given."""
    return (weights.uri if weights and weights.uri else HUB).partition("://")[0]


def place_of(uri: str | None) -> str:
    """Return an address without its scheme."""
    return (uri or "").partition("://")[2]


def claim_of(uri: str | None) -> tuple[str, str] | None:
    """Return the claim and folder of an address, None if it is of no claim.

    >>> claim_of("pvc://models/llama/8b"), claim_of("pvc://models"), claim_of(None)
    (('models', 'llama/8b'), ('models', ''), None)
    """
    if uri is None or not uri.startswith(f"{CLAIM}://"):
        return None
    claim, _, folder = place_of(uri).partition("/")
    return claim, folder


def commit_of(uri: str) -> tuple[str, str] | None:
    """Return the repository and commit of an address, None if it is not the hub's.

    >>> commit_of(f"hf://acme/support@{'f' * 40}")
    ('acme/support', 'ffffffffffffffffffffffffffffffffffffffff')
    """
    if not uri.startswith(f"{HUB}://"):
        return None
    repository, _, commit = place_of(uri).partition("@")
    return repository, commit


def hub_token(weights: Weights | None) -> tuple[str, str] | None:
    """Return the Secret and key with the hub's token, None if none is named."""
    secret = weights.secret_ref if weights else None
    if secret is None or scheme_of(weights) != HUB:
        return None
    return secret.name, secret.key or HUB_KEY


def is_short_enough(uri: str | None) -> bool:
    """Return whether an address is no longer than its scheme allows; that of the hub always is."""
    if (lies := claim_of(uri)) is not None:
        claim, folder = lies
        return len(claim) <= CLAIM_MAX_LENGTH and len(folder) <= FOLDER_MAX_LENGTH
    if uri is not None and uri.startswith(f"{IMAGE_VOLUME}://"):
        return len(place_of(uri)) <= IMAGE_MAX_LENGTH
    return uri is None or len(uri) <= BUCKET_MAX_LENGTH


def cache_is_of_the_hub(weights: Weights) -> bool:
    """Return whether a cache is described for the hub alone."""
    return weights.cache is None or scheme_of(weights) == HUB


def store_is_of_a_bucket(weights: Weights) -> bool:
    """Return whether it is said for a bucket alone how it is read."""
    return weights.object_store is None or scheme_of(weights) in BUCKETS


def image_is_mounted(weights: Weights) -> bool:
    """Return whether it is said for an image alone how it is read."""
    return weights.image is None or scheme_of(weights) == IMAGE_VOLUME


def secret_is_of_the_address(weights: Weights) -> bool:
    """Return whether a Secret is named only for the hub, S3 or Azure; a key only for the hub."""
    scheme, secret = scheme_of(weights), weights.secret_ref
    return secret is None or scheme == HUB or (scheme in (S3, AZURE) and secret.key is None)


def has_one_kind_of_cache(cache: WeightCache) -> bool:
    """Return whether the cache is either a claim or a size."""
    return (cache.claim_name is None) != (cache.storage is None)


def class_is_of_own_claims(cache: WeightCache) -> bool:
    """Return whether a storage class is given only to claims that are made."""
    return cache.storage_class_name is None or cache.storage is not None


def is_of_s3_alone(weights: Weights) -> bool:
    """Return whether the fields that only S3 has are set for S3 alone."""
    store = weights.object_store or unsaid(StoreOptions)
    said = (store.endpoint, store.region, store.addressing, store.ca_config_map_ref)
    return scheme_of(weights) == S3 or not any(said)


def account_is_of_azure(weights: Weights) -> bool:
    """Return whether an account is named always and only of Azure."""
    named = weights.object_store is not None and bool(weights.object_store.account)
    return (scheme_of(weights) == AZURE) == named


def address_of(weights: Weights) -> str:
    """Return a bucket's full address, with its endpoint's, account's or separate region's host.

    >>> def address(uri, **store):
    ...     return address_of(Weights(uri=uri, object_store=StoreOptions(**store)))
    >>> address("s3://models/llama")
    's3://models/llama'
    >>> address("s3://models/llama", endpoint="https://minio.example:9000")
    'https://minio.example:9000/models/llama'
    >>> address("az://models/llama", account="weights")
    'https://weights.blob.core.windows.net/models/llama'
    >>> address("s3://models/llama", region="cn-north-1")
    'https://s3.cn-north-1.amazonaws.com.cn/models/llama'
    """
    store, path = weights.object_store or unsaid(StoreOptions), place_of(weights.uri)
    if store.endpoint is not None:
        return f"{store.endpoint}/{path}"
    if store.account is not None:
        return f"https://{store.account}.{AZURE_HOST}/{path}"
    # A bucket's name is unique within a partition of AWS: in another it may be somebody else's.
    if store.region is not None and not _COMMERCIAL.fullmatch(store.region):
        domain = _DOMAINS.get(store.region.partition("-")[0], "amazonaws.com")
        return f"https://s3.{store.region}.{domain}/{path}"
    return weights.uri or ""
