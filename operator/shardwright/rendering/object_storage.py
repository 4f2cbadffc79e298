"""A pod's settings for the object store that its engine streams weights from.

Names of variables: documentation and sources of runai-model-streamer 0.17 with its plug-ins for S3,
Google Cloud Storage and Azure, which vLLM 0.32 and 0.33 load. The kubelet hands over the Secret's
keys.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from shardwright.rendering.deployment import Deployment, ObjectStore

CA_DIR: Final = "/etc/object-store"

_VOLUME: Final = "store-ca"

CREDENTIALS: Final[Mapping[str, Mapping[str, bool]]] = MappingProxyType(
    {
        "s3": {
            "AWS_ACCESS_KEY_ID": True,
            "AWS_SECRET_ACCESS_KEY": True,
            "AWS_SESSION_TOKEN": False,
        },
        "gs": {},
        "az": {"AZURE_STORAGE_SAS_TOKEN": False, "AZURE_STORAGE_ACCOUNT_KEY": False},
    }
)
"""By scheme: the keys of a Secret, each the name of its variable, and whether the pod
waits for it. The chart's admission policy has the same names."""


def environment(store: ObjectStore | None) -> list[dict[str, Any]]:
    """Return the variables by which the streamer finds the store; none is secret."""
    if store is None:
        return []
    plain = {
        **_of_s3(store),
        **({"AZURE_STORAGE_ACCOUNT_NAME": store.account} if store.account else {}),
    }
    fixed = [{"name": name, "value": value} for name, value in plain.items()]
    return [*fixed, *_credentials(store)]


def loader_options(store: ObjectStore, ranks: int) -> Mapping[str, object]:
    """Return vLLM's settings for the streamer in a pod of so many ranks.

    Several ranks each read a share of one copy and hand it to the others.
    """
    found = {
        "concurrency": store.concurrency,
        "distributed": True if ranks > 1 else None,
        "memory_limit": store.buffer_bytes,
    }
    return {name: value for name, value in found.items() if value is not None}


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the store's certificates as a volume."""
    store = deployment.weights.object_store
    if store is None or store.authority is None:
        return []
    items = [{"key": store.authority.key, "path": "ca.crt"}]
    source = {"name": store.authority.name, "items": items}
    return [{"name": _VOLUME, "configMap": source}]


def mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mount of the store's certificates."""
    return [
        {"name": volume["name"], "mountPath": CA_DIR, "readOnly": True}
        for volume in volumes(deployment)
    ]


def _of_s3(store: ObjectStore) -> dict[str, str]:
    if store.scheme != "s3":
        return {}
    found = {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "1" if store.virtual_host else "0"}
    if store.endpoint is not None:
        found["AWS_ENDPOINT_URL"] = store.endpoint
    if store.region is not None:  # boto3 reads the second alone
        found |= {"AWS_REGION": store.region, "AWS_DEFAULT_REGION": store.region}
    if store.authority is not None:
        found["AWS_CA_BUNDLE"] = f"{CA_DIR}/ca.crt"
    if store.secret is not None:  # nobody is to ask the node who it is
        found["AWS_EC2_METADATA_DISABLED"] = "true"
    return found


def _credentials(store: ObjectStore) -> list[dict[str, Any]]:
    if store.secret is None:
        return []
    return [
        {
            "name": name,
            "valueFrom": {
                "secretKeyRef": {
                    "name": store.secret,
                    "key": name,
                    **({} if waits else {"optional": True}),
                }
            },
        }
        for name, waits in CREDENTIALS[store.scheme].items()
    ]
