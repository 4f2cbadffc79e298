"""The engine's weights, adapters and draft model: volumes, mounts, folders, downloads."""

from collections.abc import Mapping
from typing import Any, Final

from shardwright.rendering import cache
from shardwright.rendering.deployment import ClaimPath, Deployment, HubCommit, ServedAdapter

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


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
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


def mounts(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the mounts of the volumes with weights."""
    names = [
        *(() if deployment.weights.weights_image is None else (_MODELS,)),
        *_claims(deployment).values(),
    ]
    return [{"name": name, "mountPath": _mount_path(name), "readOnly": True} for name in names]


def downloads(deployment: Deployment) -> tuple[tuple[str, str, str], ...]:
    """Return downloads by id, commit (empty: newest) and folder (empty: the hub's cache)."""
    model = (deployment.model, deployment.weights.revision or "", "")
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
    return (*(() if deployment.weights.cache is None else (model,)), *drafts, *adapters)


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
    return f"{cache.CACHE_DIR}/{kind}/{source.id}/{source.revision}"
