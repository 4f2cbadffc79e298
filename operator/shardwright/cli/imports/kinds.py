"""The kinds of object that can become a ShardedModel, and how each names its model.

Shapes as of: LeaderWorkerSet v1 (kubernetes-sigs/lws), LLMInferenceService v1alpha1 and v1alpha2
(kserve/kserve), Workspace v1alpha1 and v1beta1 (kaito-project/kaito), Deployment apps/v1. An object
that starts no vLLM, or does not name its model, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import yaml

from shardwright.cli.imports.command_line import carry_options, launch_of
from shardwright.cli.imports.draft import Content, Draft, Imported
from shardwright.cli.imports.pods import MountedWeights, carry_model, carry_pod
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.modelspec.catalogue import known_ids

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
