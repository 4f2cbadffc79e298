"""A pod that runs vLLM: its image, variables, volumes and place, added to a draft.

No Secret's content and no container other than the engine is carried over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.cli.imports.command_line import carry_options, launch_of
from shardwright.cli.imports.draft import Content, Draft
from shardwright.engines.versions import engine_version
from shardwright.engines.vllm.environment import VARIABLES
from shardwright.engines.vllm.releases import RELEASES
from shardwright.errors import Problem
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty

HUB_TOKENS: Final = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
HUB_CACHES: Final = ("/root/.cache/huggingface", "/.cache/huggingface")
"""Where images keep downloads, unless HF_HOME says otherwise."""

TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")

_ELSEWHERE: Final[Mapping[str, str]] = {
    "affinity": "the plan names the nodes; write labels into spec.placement.nodeSelector",
    "serviceAccountName": (
        "see spec.pod.serviceAccountName, which an "
        "administrator admits; the pods get no token of it"
    ),
    "initContainers": "the pods have none but the operator's own",
    "schedulerName": "see spec.placement.scheduler",
    "topologySpreadConstraints": "the plan names the nodes; see spec.pod.topologySpread",
    "hostNetwork": "see spec.pod.network",
    "hostIPC": "shared memory follows from the plan",
    "securityContext": "the pods meet the restricted Pod Security level",
    "resourceClaims": "devices are requested as extended resources",
}
"""Fields of a pod that have no place in a ShardedModel, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedWeights:
    """Where a pod reads a model that it names by path: a claim, and the folder on it."""

    claim: str
    folder: str


def carry_pod(draft: Draft, spec: Content, path: str, *, command: bool = True) -> bool:
    """Add the fields of a pod to a draft, and return whether it starts vLLM.

    With ``command`` its command names the model; otherwise something else starts the engine, and
    only its options are read.
    """
    containers = mappings(spec.get("containers"))
    started = [
        (index, item, launch) for index, item in enumerate(containers) if (launch := _launch(item))
    ]
    if command and not started:
        return False
    index, container = next(
        ((index, item) for index, item, _ in started), (0, next(iter(containers), {}))
    )
    where = f"{path}.containers[{text_or_empty(container.get('name')) or index}]"
    _carry_place(draft, spec, path)
    _carry_image(draft, container, where)
    _carry_environment(draft, container, where)
    _carry_volumes(draft, spec, container, path)
    for _, _, launch in started[:1]:
        carry_options(draft, launch.options, where)
        if launch.model and command:
            carry_model(draft, launch.model, where, _weights_at(launch.model, spec, container))
    for other in containers:
        if other is not container:
            draft.leave(
                f"{path}.containers[{text_or_empty(other.get('name'))}]",
                "a group has no containers but the engine",
            )
    return bool(started)


def carry_model(draft: Draft, model: str, where: str, weights: MountedWeights | None) -> None:
    """Add a model to a draft: an id of the hub, or a folder on a claim."""
    if not model.startswith("/"):
        draft.put("model.id", model)
        return
    if weights:
        draft.put("model.weights.uri", f"pvc://{weights.claim}/{weights.folder}".rstrip("/"))
    else:
        draft.leave(
            where,
            f"{model} is on no claim of the pod: say where the weights are in spec.model.weights",
        )
    served = draft.get("model.servedName")
    if isinstance(served, str) and served.count("/") == 1:
        draft.put("model.id", served)


def _launch(container: Content) -> Any:
    words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    try:
        return launch_of(words, _literal(container))
    except ValueError:  # a script with unclosed quotes
        return None


def _literal(container: Content) -> dict[str, str]:
    return {
        text_or_empty(item.get("name")): text_or_empty(item.get("value"))
        for item in mappings(container.get("env"))
        if item.get("value")
    }


def _weights_at(model: str, spec: Content, container: Content) -> MountedWeights | None:
    claims = dict(_claims(spec))
    for mount in mappings(container.get("volumeMounts")):
        root = text_or_empty(mount.get("mountPath")).rstrip("/")
        claim = claims.get(text_or_empty(mount.get("name")))
        if claim and root and (model == root or model.startswith(f"{root}/")):
            sub, rest = (text_or_empty(mount.get("subPath")), model.removeprefix(root).strip("/"))
            return MountedWeights(
                claim=claim, folder="/".join(part for part in (sub.strip("/"), rest) if part)
            )
    return None


def _claims(spec: Content) -> Iterator[tuple[str, str]]:
    for volume in mappings(spec.get("volumes")):
        if claim := text_or_empty(mapping(volume.get("persistentVolumeClaim")).get("claimName")):
            yield text_or_empty(volume.get("name")), claim


def _carry_place(draft: Draft, spec: Content, path: str) -> None:
    if selector := mapping(spec.get("nodeSelector")):
        draft.put("placement.nodeSelector", dict(selector))
    if tolerations := mappings(spec.get("tolerations")):
        kept = [
            {key: item[key] for key in TOLERATION if item.get(key) is not None}
            for item in tolerations
        ]
        draft.put("placement.tolerations", kept)
    for name, field in (
        ("priorityClassName", "pod.priorityClassName"),
        ("runtimeClassName", "pod.runtimeClassName"),
    ):
        if value := text_or_empty(spec.get(name)):
            draft.put(field, value)
    if secrets := mappings(spec.get("imagePullSecrets")):
        draft.put(
            "pod.imagePullSecrets", [{"name": text_or_empty(item.get("name"))} for item in secrets]
        )
    for name, why in _ELSEWHERE.items():
        if spec.get(name):
            draft.leave(f"{path}.{name}", why)


def _carry_image(draft: Draft, container: Content, where: str) -> None:
    image = text_or_empty(container.get("image"))
    if not image:
        return
    version = engine_version(image, None, RELEASES)
    if isinstance(version, Problem):
        draft.leave(f"{where}.image", f"{image}: {version.sentence()}; the default image is used")
    else:
        draft.put("engine.image", image)


def _carry_environment(draft: Draft, container: Content, where: str) -> None:
    kept = []
    for item in mappings(container.get("env")):
        name, place = (
            text_or_empty(item.get("name")),
            f"{where}.env[{text_or_empty(item.get('name'))}]",
        )
        reference = mapping(mapping(item.get("valueFrom")).get("secretKeyRef"))
        if name in HUB_TOKENS and reference:
            token = {
                "name": text_or_empty(reference.get("name")),
                "key": text_or_empty(reference.get("key")),
            }
            draft.put("model.weights.secretRef", token)
        elif name in HUB_TOKENS:
            draft.leave(place, "a token belongs into a Secret: spec.model.weights.secretRef")
        elif name in VARIABLES and "value" in item:
            kept.append({"name": name, "value": text_or_empty(item.get("value"))})
        else:
            draft.leave(
                place,
                "users may set only variables that change "
                "neither the plan nor who may do what in the pod",
            )
    if kept:
        draft.put("engine.env", kept)
    if container.get("envFrom"):
        draft.leave(f"{where}.envFrom", "name the variables in spec.engine.env")


def _carry_volumes(draft: Draft, spec: Content, container: Content, path: str) -> None:
    claims, cache = (dict(_claims(spec)), _literal(container).get("HF_HOME", "").rstrip("/"))
    for mount in mappings(container.get("volumeMounts")):
        name, at = (
            text_or_empty(mount.get("name")),
            text_or_empty(mount.get("mountPath")).rstrip("/"),
        )
        if name in claims and at in {*HUB_CACHES, cache} and at:
            draft.put("model.weights.cache", {"claimName": claims.pop(name)})
    known = {name for name, _ in _claims(spec)}
    for volume in mappings(spec.get("volumes")):
        name = text_or_empty(volume.get("name"))
        in_memory = mapping(volume.get("emptyDir")).get("medium") == "Memory"
        if name not in known and not in_memory and "emptyDir" not in volume:
            draft.leave(
                f"{path}.volumes[{name}]",
                "the pods mount the weights, and nothing else of a user's",
            )
