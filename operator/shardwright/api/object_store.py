"""``spec.model.weights.objectStore``: weights that the engine streams from a bucket.

Knows S3 and stores with its API, Google's and Azure's stores, and no other.
"""

import re
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from shardwright.api.parts import DataKey, ObjectName, Part

S3, GCS, AZURE = "s3://", "gs://", "az://"

STORE_URI = (
    r"^(s3|gs|az)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"
    r"(/[A-Za-z0-9_-][A-Za-z0-9._=+-]*)*$"
)
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


class StoreSecret(Part):
    """A Secret in the same namespace whose keys have the names of variables."""

    model_config = ConfigDict(
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )

    name: ObjectName = Field(
        description="Name of the Secret. Keys for s3://: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY and, if wanted, AWS_SESSION_TOKEN; for az://: "
        "AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_ACCOUNT_KEY."
    )


class StoreAuthority(Part):
    """A key of a ConfigMap in the same namespace with certificates to trust."""

    model_config = ConfigDict(
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: DataKey = Field(
        default="ca.crt",
        description="Key whose text is the bundle of certificates (PEM).",
    )


class ObjectStoreWeights(Part):
    """Weights in a bucket of S3, Google Cloud Storage or Azure Blob Storage."""

    uri: Annotated[str, StringConstraints(max_length=1024, pattern=STORE_URI)] = Field(
        description="Folder in the bucket that holds config.json, the tokenizer and "
        "safetensors: s3://bucket/path, gs://bucket/path or az://container/path."
    )
    credentials_secret_ref: StoreSecret | None = Field(
        default=None,
        description="Secret with keys for s3:// or az://. Only the kubelet reads it. "
        "Default: the identity of pod.serviceAccountName.",
    )
    endpoint: (
        Annotated[str, StringConstraints(max_length=253, pattern=ENDPOINT)] | None
    ) = Field(
        default=None,
        description="Another server that speaks S3, as https://minio.example.com:9000. "
        "Default: AWS.",
    )
    region: Annotated[str, StringConstraints(max_length=63, pattern=REGION)] | None = (
        Field(default=None, description="Region of the bucket, for s3://.")
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
    account: (
        Annotated[str, StringConstraints(max_length=24, pattern=ACCOUNT)] | None
    ) = Field(default=None, description="Storage account, for az://.")
    concurrency: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None,
        description="Connections of each rank. Default: the streamer's own, 8.",
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


def is_of_s3_alone(store: ObjectStoreWeights) -> bool:
    """Return whether the fields that only S3 has are set for S3 alone."""
    said = (store.endpoint, store.region, store.addressing, store.ca_config_map_ref)
    return store.uri.startswith(S3) or not any(said)


def account_is_of_azure(store: ObjectStoreWeights) -> bool:
    """Return whether an account is named of Azure, and always there."""
    return store.uri.startswith(AZURE) == (store.account is not None)


def keys_are_of_no_gcs(store: ObjectStoreWeights) -> bool:
    """Return whether no Secret is named for Google's store, which takes no keys."""
    return store.credentials_secret_ref is None or not store.uri.startswith(GCS)


def address_of(store: ObjectStoreWeights) -> str:
    """Return the full address of the weights: with the host of the endpoint, of the account, or of
    a region that has buckets of its own (as those of China have).

    >>> address_of(ObjectStoreWeights(uri="s3://models/llama"))
    's3://models/llama'
    >>> minio = {"uri": "s3://models/llama", "endpoint": "https://minio.example:9000"}
    >>> address_of(ObjectStoreWeights.model_validate(minio))
    'https://minio.example:9000/models/llama'
    >>> azure = {"uri": "az://models/llama", "account": "weights"}
    >>> address_of(ObjectStoreWeights.model_validate(azure))
    'https://weights.blob.core.windows.net/models/llama'
    >>> china = {"uri": "s3://models/llama", "region": "cn-north-1"}
    >>> address_of(ObjectStoreWeights.model_validate(china))
    'https://s3.cn-north-1.amazonaws.com.cn/models/llama'
    """
    _, _, path = store.uri.partition("://")
    if store.endpoint is not None:
        return f"{store.endpoint}/{path}"
    if store.account is not None:
        return f"https://{store.account}.{AZURE_HOST}/{path}"
    # A bucket's name is unique within a partition of AWS: in another it may be somebody else's.
    if store.region is not None and not _COMMERCIAL.fullmatch(store.region):
        domain = _DOMAINS.get(store.region.partition("-")[0], "amazonaws.com")
        return f"https://s3.{store.region}.{domain}/{path}"
    return store.uri
