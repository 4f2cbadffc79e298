"""The engine's weights, adapters and draft model: volumes, mounts, folders, downloads.

A pod's cache for downloads: thrown away with it, or on a claim filled by an init container.

Weights on a user's claim are in ``sources``.

A pod's settings for the object store that its engine streams weights from.

Names of variables: documentation and sources of runai-model-streamer 0.17 with its plug-ins for S3,
Google Cloud Storage and Azure, which vLLM 0.32 and 0.33 load. The kubelet hands over the Secret's
keys.

A user's volumes in the engine's container, under names that none of ours will ever have.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shardwright.hardware.untrusted import quantity
from shardwright.rendering.deployment import (
    ClaimPath,
    Deployment,
    HubCommit,
    ObjectStore,
    OwnVolume,
    ServedAdapter,
    VolumeKind,
)

CACHE_DIR: Final = "/cache"
HUB_DIR: Final = f"{CACHE_DIR}/huggingface"

INIT_CPU: Final = "1"
INIT_MEMORY: Final = "1Gi"
"""What a download asks for; assumed: files go to disk in pieces. The pod asks for the greater of
this and its engine's.
"""


OWN_DIR: Final = f"{CACHE_DIR}/own"
"""Where an engine writes: code that it compiles, above all, which it loads again unseen."""

_OWN_PART: Final = "pods/$(POD_NAME)"
"""Its part of the cache: a claim may be shared, and pods' names are stable."""


def hub_dir(deployment: Deployment) -> str:
    """Return the hub's folder of an engine: what was downloaded, else an empty one of its own."""
    return HUB_DIR if downloads(deployment) else f"{OWN_DIR}/huggingface"


def cache_mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return an engine's parts of the cache: what was downloaded to read, and its own to write.

    Others of the same claim load what lies there, so no engine writes anything but its own.
    """
    parts = [HUB_DIR, *sorted(_filled_folders(deployment))] if downloads(deployment) else []
    read = [
        {
            "name": "cache",
            "mountPath": path,
            "subPath": path.removeprefix(f"{CACHE_DIR}/"),
            "readOnly": True,
        }
        for path in parts
    ]
    return [*read, {"name": "cache", "mountPath": OWN_DIR, "subPathExpr": _OWN_PART}]


def _filled_folders(deployment: Deployment) -> set[str]:
    # Below the cache, by kind: the folder of each download is two levels and a commit below that.
    folders = (folder for _, _, folder in downloads(deployment) if folder)
    return {"/".join(folder.split("/")[:3]) for folder in folders}


def volume(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the cache as a volume of the pod; the StatefulSet adds a claim of its own."""
    if deployment.weights.cache is None:
        return [{"name": "cache", "emptyDir": {}}]
    # The StatefulSet controller itself adds the volume of a claim template.
    if deployment.weights.cache.claim is None:
        return []
    return [
        {"name": "cache", "persistentVolumeClaim": {"claimName": deployment.weights.cache.claim}}
    ]


def claim_templates(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the templates of every pod's claims."""
    if deployment.weights.cache is None or deployment.weights.cache.storage is None:
        return []
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": deployment.weights.cache.storage}},
    }
    if deployment.weights.cache.storage_class is not None:
        spec["storageClassName"] = deployment.weights.cache.storage_class
    return [{"metadata": {"name": "cache"}, "spec": spec}]


def claim_fields(claims: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a StatefulSet's fields for claims that outlive group restarts, not the model."""
    if not claims:
        return {}
    return {
        "volumeClaimTemplates": list(claims),
        "persistentVolumeClaimRetentionPolicy": {
            # The API's default would keep the claims, beyond the life of the model.
            "whenDeleted": "Delete",
            # A restart ends all pods before it creates any, and must find the downloads again.
            "whenScaled": "Retain",
        },
    }


def downloads_model(deployment: Deployment) -> bool:
    """Return whether the model is downloaded to the node's disk, at each start."""
    return deployment.weights.from_hub and deployment.weights.cache is None


def downloads_draft(deployment: Deployment) -> bool:
    """Return whether a draft model is downloaded to the node's disk."""
    return (
        isinstance(deployment.drafting.draft_model, HubCommit) and deployment.weights.cache is None
    )


MODELS_DIR: Final = "/models"
ADAPTERS_DIR: Final = "/adapters"
DRAFTS_DIR: Final = "/drafts"

_MODELS: Final = "models"
_ADAPTERS: Final = "adapters"
_DRAFTS: Final = "drafts"


def model_source(deployment: Deployment) -> str:
    """Return what the engine serves: a folder, an address or a hub id."""
    if deployment.weights.weights_image is not None:
        return _below(MODELS_DIR, deployment.weights.weights_image.path)
    if deployment.weights.object_store is not None:
        return deployment.weights.object_store.uri
    return (
        deployment.model
        if deployment.weights.claim is None
        else _folder(deployment, deployment.weights.claim)
    )


def adapter_folders(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Return every adapter's name and folder."""
    return tuple(
        (adapter.name, _adapter_folder(deployment, adapter))
        for adapter in deployment.serving.adapters.served
    )


def draft_folder(deployment: Deployment) -> str | None:
    """Return the folder of the draft model, None without one."""
    source = deployment.drafting.draft_model
    if source is None:
        return None
    return (
        _hub_folder(_DRAFTS, source)
        if isinstance(source, HubCommit)
        else _folder(deployment, source)
    )


def source_volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return a volume for every claim that is read, and one for the image of the weights."""
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for claim, name in _claims(deployment).items()
    ]
    image = deployment.weights.weights_image
    if image is None:
        return claims
    policy = {} if image.pull_policy is None else {"pullPolicy": image.pull_policy}
    return [{"name": _MODELS, "image": {"reference": image.reference, **policy}}, *claims]


def source_mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the volumes with weights."""
    names = [
        *(() if deployment.weights.weights_image is None else (_MODELS,)),
        *_claims(deployment).values(),
    ]
    return [{"name": name, "mountPath": _mount_path(name), "readOnly": True} for name in names]


def downloads(deployment: Deployment) -> tuple[tuple[str, str, str], ...]:
    """Return downloads by id, commit (empty: newest) and folder (empty: the hub's cache)."""
    model = ((deployment.model, deployment.weights.revision or "", ""),)
    hub = [
        adapter.source
        for adapter in deployment.serving.adapters.served
        if isinstance(adapter.source, HubCommit)
    ]
    # Two adapters of one commit are one download.
    adapters = dict.fromkeys(
        (source.id, source.revision, _hub_folder(_ADAPTERS, source)) for source in hub
    )
    draft = deployment.drafting.draft_model
    drafts = (
        ((draft.id, draft.revision, _hub_folder(_DRAFTS, draft)),)
        if isinstance(draft, HubCommit)
        else ()
    )
    return (*(model if deployment.weights.from_hub else ()), *drafts, *adapters)


def _claims(deployment: Deployment) -> Mapping[str, str]:
    sources = [adapter.source for adapter in deployment.serving.adapters.served]
    beside = dict.fromkeys(source.claim for source in sources if isinstance(source, ClaimPath))
    own = {} if deployment.weights.claim is None else {deployment.weights.claim.claim: _MODELS}
    # Their index is in names and paths: another order would be another template.
    others = (claim for claim in beside if claim not in own)
    found = own | {claim: f"{_ADAPTERS}-{index}" for index, claim in enumerate(others)}
    draft = deployment.drafting.draft_model
    # The right side counts: a claim that is read already is mounted once, under its first name.
    return {draft.claim: _DRAFTS} | found if isinstance(draft, ClaimPath) else found


def _mount_path(volume: str) -> str:
    paths = {_MODELS: MODELS_DIR, _DRAFTS: DRAFTS_DIR}
    return paths.get(volume) or f"{ADAPTERS_DIR}/{volume.removeprefix(f'{_ADAPTERS}-')}"


def _folder(deployment: Deployment, source: ClaimPath) -> str:
    return _below(_mount_path(_claims(deployment)[source.claim]), source.path)


def _below(mount_path: str, folder: str) -> str:
    return f"{mount_path}/{folder.strip('/')}".rstrip("/")


def _adapter_folder(deployment: Deployment, adapter: ServedAdapter) -> str:
    source = adapter.source
    return (
        _hub_folder(_ADAPTERS, source)
        if isinstance(source, HubCommit)
        else _folder(deployment, source)
    )


def _hub_folder(kind: str, source: HubCommit) -> str:
    return f"{CACHE_DIR}/{kind}/{source.id}/{source.revision}"


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


def store_volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the store's certificates as a volume."""
    store = deployment.weights.object_store
    if store is None or store.authority is None:
        return []
    items = [{"key": store.authority.key, "path": "ca.crt"}]
    source = {"name": store.authority.name, "items": items}
    return [{"name": _VOLUME, "configMap": source}]


def store_mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mount of the store's certificates."""
    return [
        {"name": volume["name"], "mountPath": CA_DIR, "readOnly": True}
        for volume in store_volumes(deployment)
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


PREFIX: Final = "own-"
"""What the names of such volumes begin with in a pod."""


def own_volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the user's volumes of the pod."""
    return [
        {"name": f"{PREFIX}{item.name}", **_SOURCES[item.kind](item)}
        for item in deployment.pods.volumes
    ]


def own_mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the user's volumes in the engine's container."""
    return [
        {
            "name": f"{PREFIX}{item.name}",
            "mountPath": item.path,
            **({"readOnly": True} if item.read_only else {}),
        }
        for item in deployment.pods.volumes
    ]


def scratch_bytes(deployment: Deployment) -> int:
    """Return the bytes of the empty folders among them, which count as the pod's local disk."""
    return sum(
        quantity(item.source) or 0
        for item in deployment.pods.volumes
        if item.kind is VolumeKind.SCRATCH
    )


def _claim(item: OwnVolume) -> dict[str, Any]:
    return {
        "persistentVolumeClaim": {
            "claimName": item.source,
            **({"readOnly": True} if item.read_only else {}),
        }
    }


_SOURCES: Final[Mapping[VolumeKind, Callable[[OwnVolume], dict[str, Any]]]] = {
    VolumeKind.CONFIG_MAP: lambda item: {"configMap": {"name": item.source}},
    VolumeKind.SECRET: lambda item: {"secret": {"secretName": item.source}},
    VolumeKind.CLAIM: _claim,
    VolumeKind.SCRATCH: lambda item: {"emptyDir": {"sizeLimit": item.source}},
}
