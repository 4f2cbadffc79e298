"""What a foreign pod mounts: the weights, the cache of the hub, and folders of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from shardwright.api.pod_spec import MOUNT_PATTERN
from shardwright.cli.imports.draft import Draft
from shardwright.cli.imports.source import Spot, leave_together

HUB_CACHES: Final = ("/root/.cache/huggingface", "/.cache/huggingface")
"""Where images keep downloads, unless HF_HOME says otherwise."""

SHARED_MEMORY: Final = "shared memory follows from the plan"

_MOUNTABLE: Final = re.compile(MOUNT_PATTERN)
_CLAIM: Final = ("persistentVolumeClaim", "claimName")


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedWeights:
    """Where a pod reads a model that it names by path: a folder on a claim."""

    claim: str
    folder: str


def carry_model(draft: Draft, model: str, where: str, weights: MountedWeights | None) -> None:
    """Add a model to a draft: an id of the hub, or a folder on a claim."""
    if not model.startswith("/"):
        draft.put("model.id", model, where)
        return
    if weights:
        uri = f"pvc://{weights.claim}/{weights.folder}".rstrip("/")
        draft.put("model.weights.uri", uri, where)
    else:
        draft.leave(
            where,
            f"{model} is on no claim of the pod: say where the weights are in spec.model.weights",
        )
    name_by_served(draft)


def name_by_served(draft: Draft) -> None:
    """Take the name that a model is served by for its id, if it looks like one and none is told."""
    served = draft.get("model.servedName")
    if draft.get("model.id") is None and isinstance(served, str) and served.count("/") == 1:
        draft.put("model.id", served)


def literal_variables(container: Spot) -> dict[str, str]:
    """Return the variables of a container whose values it states itself."""
    return {
        str(item.at("name").value): str(item.at("value").value)
        for item in container.at("env").each()
        if item.at("value").is_there
    }


def _claims(pod: Spot) -> Iterator[tuple[str, Spot]]:
    for volume in pod.at("volumes").each():
        if volume.at(*_CLAIM).string:
            yield str(volume.at("name").value), volume


def weights_at(model: str, pod: Spot, container: Spot) -> MountedWeights | None:
    """Take the claim on which a model lies that a pod names by path; None if it is on none."""
    claims = dict(_claims(pod))
    for mount in container.at("volumeMounts").each():
        root = str(mount.at("mountPath").value or "").rstrip("/")
        volume = claims.get(str(mount.at("name").value))
        if volume and root and (model == root or model.startswith(f"{root}/")):
            sub, rest = str(mount.at("subPath").value or ""), model.removeprefix(root)
            _take_mount(volume, mount, "subPath")
            folder = "/".join(part for part in (sub.strip("/"), rest.strip("/")) if part)
            return MountedWeights(claim=volume.at(*_CLAIM).string, folder=folder)
    return None


def _take_mount(volume: Spot, mount: Spot, *more: str) -> None:
    volume.at("name").take()
    volume.at(*_CLAIM).take()
    for key in ("name", "mountPath", "readOnly", *more):
        mount.at(key).take()


def carry_volumes(draft: Draft, pod: Spot, container: Spot) -> None:
    """Add the claim that keeps downloads, and the folders that spec.pod.volumes admits, to a draft;
    the weights' own are taken before.
    """
    cache = literal_variables(container).get("HF_HOME", "").rstrip("/")
    kept = []
    for volume in pod.at("volumes").each():
        name = volume.at("name").value
        mounts = [
            mount
            for mount in container.at("volumeMounts").each()
            if mount.at("name").value == name and mount.at("mountPath").is_open
        ]
        paths = [str(mount.at("mountPath").value or "").rstrip("/") for mount in mounts]
        if not volume.at("name").is_open:
            continue
        if "/dev/shm" in paths or volume.at("emptyDir", "medium").value == "Memory":  # noqa: S108 - shared memory
            leave_together([volume, *mounts], SHARED_MEMORY)
        elif volume.at("emptyDir").value is not None:
            leave_together([volume, *mounts], "the operator brings folders for what engines write")
        elif volume.at(*_CLAIM).string and {*paths} & {*HUB_CACHES, cache} - {""}:
            draft.put("model.weights.cache", {"claimName": volume.at(*_CLAIM).string}, volume)
            _take_mount(volume, next(iter(mounts)))
        elif len(mounts) == 1 and (own := _own_volume(volume, mounts[0])):
            kept.append(own)
    if kept:
        draft.put("pod.volumes", kept, pod.at("volumes"))


def _own_volume(volume: Spot, mount: Spot) -> dict[str, Any] | None:
    """Take a volume that spec.pod.volumes can say, else return None."""
    path, claim = mount.at("mountPath").string, volume.at("persistentVolumeClaim")
    if not _MOUNTABLE.match(path) or mount.at("subPath").is_there:
        return None
    field: dict[str, Any] = {}
    if claim.at("claimName").string:
        read_only = mount.at("readOnly").value is True or claim.at("readOnly").value is True
        field = {"pvc": {"claimName": claim.at("claimName").text(), "readOnly": read_only}}
        claim.at("readOnly").take()
    elif volume.at("configMap", "name").string:
        field = {"configMap": {"name": volume.at("configMap", "name").text()}}
    if not field:
        return None
    for key in ("name", "mountPath", "readOnly"):
        mount.at(key).take()
    return {"name": volume.at("name").take(), "mountPath": path, **field}
