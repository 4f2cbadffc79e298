"""The kinds of object that can become a ShardedModel, and how each names its model.

Shapes as of: LeaderWorkerSet v1 (kubernetes-sigs/lws), LLMInferenceService v1alpha1 and v1alpha2
(kserve/kserve), Workspace v1alpha1 and v1beta1 (kaito-project/kaito), Deployment apps/v1. An object
that starts no vLLM, or does not name its model, is refused.

A pod that runs vLLM: its image, variables, volumes and place, added to a draft.

No Secret's content and no container other than the engine is carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import yaml

from shardwright.cli.imports.command_line import carry_options, launch_of
from shardwright.cli.imports.draft import Content, Draft, Imported
from shardwright.engines.versions import engine_version
from shardwright.engines.vllm.environment import VARIABLES
from shardwright.engines.vllm.releases import RELEASES
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.modelspec.catalogue import known_ids

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


DEPLOYMENT: Final = "Deployment"
LEADER_WORKER_SET: Final = "LeaderWorkerSet"
LLM_INFERENCE_SERVICE: Final = "LLMInferenceService"
WORKSPACE: Final = "Workspace"

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
KSERVE_ARGUMENTS: Final = "VLLM_ADDITIONAL_ARGS"
"""Variable from which KServe's launcher takes further options of vLLM."""

KAITO_TOKEN_KEY: Final = "HF_TOKEN"  # noqa: S105 - the key of a Secret
"""Key of the Secret that ``modelAccessSecret`` names. Source: KAITO's documentation."""

_NOT_VLLM: Final = "has no container that starts vLLM"

Others = Sequence[Content]
"""Objects given along with the imported one, which may refer to ConfigMaps among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How to import: ``pins`` keeps the degrees, ``model`` is the id for an object without one."""

    pins: bool = False
    model: str | None = None


def importable(content: Content) -> bool:
    """Return whether an object is of a kind that can become a ShardedModel."""
    return str(content.get("kind")) in READERS


def import_object(
    content: Content, others: Others = (), options: ImportOptions = ImportOptions()
) -> Imported:
    """Return the ShardedModel of an object.

    Raises:
        InputError: it serves nothing with vLLM, or does not tell which model.
    """
    kind, metadata = str(content.get("kind")), mapping(content.get("metadata"))
    name, namespace = (
        text_or_empty(metadata.get("name")) or "model",
        text_or_empty(metadata.get("namespace")) or None,
    )
    draft = Draft(name=name, namespace=namespace, pins=options.pins)
    READERS[kind](draft, content, others)
    if options.model:
        draft.put("model.id", options.model)
    if draft.get("model.id") is None:
        what, limit = (
            f"{kind} {name} serves files of its own",
            "and does not tell which model they are",
        )
        raise InputError(
            [
                Problem(
                    code="ImportUnclear",
                    what=what,
                    limit=limit,
                    remedy="name it with --model ORG/NAME",
                )
            ]
        )
    if draft.get("model.servedName") == draft.get("model.id"):
        del draft.spec["model"]["servedName"]  # it is the default
    return draft.finished(f"{kind} {name}")


def _of_deployment(draft: Draft, content: Content, _: Others) -> None:
    spec = mapping(content.get("spec"))
    _replicas(draft, spec.get("replicas"))
    template = mapping(spec.get("template"))
    if not carry_pod(draft, mapping(template.get("spec")), "spec.template.spec"):
        raise InputError([_not_vllm(content)])


def _of_leader_worker_set(draft: Draft, content: Content, _: Others) -> None:
    spec = mapping(content.get("spec"))
    _replicas(draft, spec.get("replicas"))
    group = mapping(spec.get("leaderWorkerTemplate"))
    which = "leaderTemplate" if group.get("leaderTemplate") else "workerTemplate"
    pod = mapping(mapping(group.get(which)).get("spec"))
    if not carry_pod(draft, pod, f"spec.leaderWorkerTemplate.{which}.spec"):
        raise InputError([_not_vllm(content)])
    draft.leave(
        "spec.leaderWorkerTemplate.size",
        f"{group.get('size', 1)}: how many nodes a group has follows from the plan",
    )
    if which == "leaderTemplate":
        draft.leave(
            "spec.leaderWorkerTemplate.workerTemplate", "all ranks of a group are rendered alike"
        )
    for name in ("rolloutStrategy", "startupPolicy", "networkConfig"):
        if spec.get(name):
            draft.leave(f"spec.{name}", "groups restart as a whole; see spec.rollout")


def _of_llm_inference_service(draft: Draft, content: Content, _: Others) -> None:
    spec = mapping(content.get("spec"))
    _replicas(draft, spec.get("replicas"))
    model, degrees = mapping(spec.get("model")), mapping(spec.get("parallelism"))
    pod = mapping(spec.get("template"))
    if name := text_or_empty(model.get("name")):
        draft.put("model.servedName", name)
    carry_pod(draft, pod, "spec.template", command=False)
    for container in mappings(pod.get("containers"))[:1]:
        _kserve_arguments(draft, container)
    _kserve_model(draft, text_or_empty(model.get("uri")), text_or_empty(model.get("name")))
    for theirs, ours in (
        ("tensor", "tensor"),
        ("pipeline", "pipeline"),
        ("data", "dataParallelAttention"),
    ):
        if isinstance(degree := degrees.get(theirs), int):
            draft.degrees[ours] = degree
    if degrees.get("expert") is True:
        draft.leave(
            "spec.parallelism.expert", "whether experts are spread is the planner's to choose"
        )
    for field, why in _KSERVE.items():
        if spec.get(field):
            draft.leave(f"spec.{field}", why)


_KSERVE: Final[Mapping[str, str]] = {
    "worker": "all ranks of a group are rendered alike",
    "prefill": "prefill and decode run in the same pods",
    "router": "route to the Service of status.endpoint with your own Gateway",
    "baseRefs": "write what the named configurations say into this one first",
    "scaling": "scale the ShardedModel: it has the subresource scale",
    "storageInitializer": "the engine downloads the weights, or reads them from a claim",
}


def _kserve_arguments(draft: Draft, container: Content) -> None:
    where = "spec.template.containers[main].env[VLLM_ADDITIONAL_ARGS]"
    draft.left_out = [
        item for item in draft.left_out if not item.path.endswith(f".env[{KSERVE_ARGUMENTS}]")
    ]
    for item in mappings(container.get("env")):
        if item.get("name") == KSERVE_ARGUMENTS:
            launch = launch_of(text_or_empty(item.get("value")).split(), {})
            carry_options(draft, launch.options if launch else (), where)


def _kserve_model(draft: Draft, uri: str, name: str) -> None:
    scheme, _, rest = uri.partition("://")
    if scheme == "hf":
        model, _, revision = rest.partition(":")
        draft.put("model.id", model)
        if revision:
            draft.leave(
                "spec.model.uri", f"revision {revision}: set spec.model.revision to the commit"
            )
    elif scheme == "pvc":
        claim, _, folder = rest.partition("/")
        carry_model(draft, "/weights", "spec.model.uri", MountedWeights(claim=claim, folder=folder))
    elif scheme == "oci":
        draft.put("model.weights.uri", uri)
    else:
        draft.leave(
            "spec.model.uri",
            f"{uri}: copy the weights to a claim "
            "(spec.model.weights.uri pvc://), or read them from the hub",
        )
    if draft.get("model.id") is None and name.count("/") == 1:
        draft.put("model.id", name)


def _of_workspace(draft: Draft, content: Content, others: Others) -> None:
    inference, resource = (mapping(content.get("inference")), mapping(content.get("resource")))
    preset = mapping(inference.get("preset"))
    if template := mapping(inference.get("template")):
        if not carry_pod(draft, mapping(template.get("spec")), "inference.template.spec"):
            raise InputError([_not_vllm(content)])
    elif name := text_or_empty(preset.get("name")):
        _kaito_preset(draft, name)
    else:
        raise InputError([_not_vllm(content)])
    if secret := text_or_empty(mapping(preset.get("presetOptions")).get("modelAccessSecret")):
        draft.put("model.weights.secretRef", {"name": secret, "key": KAITO_TOKEN_KEY})
    _kaito_config(draft, text_or_empty(inference.get("config")), others)
    _kaito_nodes(draft, resource)
    if inference.get("adapters"):
        draft.leave(
            "inference.adapters", "adapters come from the hub or a claim: spec.model.adapters"
        )


def _kaito_preset(draft: Draft, name: str) -> None:
    """Add a preset's model: newer presets are ids of the hub, older ones an id's last part."""
    near = [known for known in known_ids() if known.rpartition("/")[2].lower() == name.lower()]
    if "/" in name or len(near) == 1:
        draft.put("model.id", name if "/" in name else near[0])
    else:
        draft.leave("inference.preset.name", f"{name} is a name of KAITO's own")


def _kaito_config(draft: Draft, name: str, others: Others) -> None:
    if not name:
        return
    config_map = next(
        (
            item
            for item in others
            if item.get("kind") == "ConfigMap" and mapping(item.get("metadata")).get("name") == name
        ),
        {},
    )
    found = text_or_empty(mapping(config_map.get("data")).get("inference_config.yaml"))
    if not found:
        draft.leave(
            "inference.config",
            f"ConfigMap {name} is not among the files: add it to have its options carried over",
        )
        return
    try:
        options = mapping(mapping(yaml.safe_load(found)).get("vllm"))
    except yaml.YAMLError:
        options = {}
    said = tuple(
        (str(key).replace("_", "-"), value if isinstance(value, bool) else str(value))
        for key, value in options.items()
    )
    carry_options(draft, said, f"ConfigMap {name}")


def _kaito_nodes(draft: Draft, resource: Content) -> None:
    selector = {
        str(key): str(value)
        for key, value in mapping(mapping(resource.get("labelSelector")).get("matchLabels")).items()
    }
    if instance := text_or_empty(resource.get("instanceType")):
        selector[INSTANCE_TYPE] = instance
        draft.leave(
            "resource.instanceType",
            "KAITO makes nodes; here an autoscaler does, or they are there already",
        )
    if selector:
        draft.put("placement.nodeSelector", selector)
    if resource.get("count"):
        draft.leave(
            "resource.count", f"{resource['count']}: how many nodes there are follows from the plan"
        )
    if resource.get("preferredNodes"):
        draft.leave(
            "resource.preferredNodes",
            "the plan names the nodes; write labels into spec.placement.nodeSelector",
        )


def _replicas(draft: Draft, replicas: Any) -> None:
    if isinstance(replicas, int):
        draft.put("replicas", replicas)


def _not_vllm(content: Content) -> Problem:
    what = f"{content.get('kind')} {text_or_empty(mapping(content.get('metadata')).get('name'))}"
    return Problem(
        code="ImportUnclear",
        what=what,
        limit=_NOT_VLLM,
        remedy="only what runs vLLM can be imported",
    )


ReadObject = Callable[[Draft, Content, Others], None]

READERS: Final[Mapping[str, ReadObject]] = MappingProxyType(
    {
        DEPLOYMENT: _of_deployment,
        LEADER_WORKER_SET: _of_leader_worker_set,
        LLM_INFERENCE_SERVICE: _of_llm_inference_service,
        WORKSPACE: _of_workspace,
    }
)
"""The reader of each kind."""
