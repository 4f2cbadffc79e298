"""The kinds of object that can become a ShardedModel.

An object that starts no vLLM, that does not name its model, or that runs on accelerators which
nothing here plans, is refused. Every leaf of the others is carried over or listed.

Shapes as of: Deployment apps/v1, LeaderWorkerSet v1 (kubernetes-sigs/lws), StormService and
RayClusterFleet v1alpha1 (vllm-project/aibrix); those of the other projects have modules of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.cli.imports.accelerators import refuse_other_accelerators
from shardwright.cli.imports.draft import Content, Draft, Imported
from shardwright.cli.imports.dynamo import read_graph
from shardwright.cli.imports.kaito import (
    read_inference_set,
    read_multi_role_inference,
    read_workspace,
)
from shardwright.cli.imports.kserve import read_inference_service, read_llm_inference_service
from shardwright.cli.imports.pods import (
    POD_REASONS,
    carry_launch,
    carry_pod,
    carry_queue,
    engine_of,
    not_vllm,
    several,
)
from shardwright.cli.imports.production_stack import VALUES, models_of, read_values
from shardwright.cli.imports.source import ForeignObject, Spot
from shardwright.cli.imports.storage import carry_volumes
from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping, text_or_empty

Others = Sequence[Content]
"""Objects given along with the imported one, which may refer to ConfigMaps among them."""

_ALIKE: Final = "all ranks of a group are rendered alike"
_OLD: Final = "it is the old object's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How to import: ``pins`` keeps the degrees, ``model`` is the id for an object without one."""

    pins: bool = False
    model: str | None = None


def kind_of(content: Content) -> str:
    """Return the kind of an object; the values of a chart have none of their own."""
    return VALUES if "servingEngineSpec" in content else str(content.get("kind"))


def importable(content: Content) -> bool:
    """Return whether an object is of a kind that can become a ShardedModel."""
    return kind_of(content) in READERS


def models_in(content: Content) -> Sequence[Content]:
    """Return an object once for each model in it, with that model alone."""
    return models_of(content) if kind_of(content) == VALUES else (content,)


def import_object(
    content: Content, others: Others = (), options: ImportOptions = ImportOptions()
) -> Imported:
    """Return the ShardedModel of an object.

    Raises:
        InputError: it serves nothing with vLLM, does not tell which model, or cannot be planned.
    """
    kind, metadata = kind_of(content), mapping(content.get("metadata"))
    document = ForeignObject(value=content)
    draft = Draft(
        name=text_or_empty(metadata.get("name")) or "model",
        namespace=text_or_empty(metadata.get("namespace")) or None,
        document=document,
        pins=options.pins,
    )
    root = document.root
    for path in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")):
        root.at(*path).take()
    refuse_other_accelerators(content, others, f"{kind} {draft.name}")
    reasons = READERS[kind](draft, root, others)
    if options.model:
        draft.put("model.id", options.model)
    source = f"{kind} {draft.name}"
    if draft.get("model.id") is None:
        raise InputError([draft.unknown or _nameless(source)])
    if draft.get("model.servedName") == draft.get("model.id"):
        del draft.spec["model"]["servedName"]  # it is the default
    carry_queue(draft, root.at("metadata", "labels"))
    document.leave_kubernetes()
    for name in ("labels", "annotations"):
        for part in root.at("metadata", name).each():
            if part.is_open:
                part.leave(reasons.get(part.last, _OLD))
    document.leave_the_rest({**POD_REASONS, **reasons})
    return draft.finished(source)


def _nameless(source: str) -> Problem:
    return Problem(
        code="ImportUnclear",
        what=f"{source} serves files of its own",
        limit="and does not tell which model they are",
        remedy="name it with --model ORG/NAME",
    )


def _of_deployment(draft: Draft, root: Spot, _: Others) -> Mapping[str, str]:
    draft.carry_number("replicas", root.at("spec", "replicas"))
    _template(draft, root.at("spec", "template"), f"Deployment {draft.name}")
    return {}


def _template(draft: Draft, template: Spot, source: str) -> None:
    """Add a template of pods whose engine is the container that starts vLLM."""
    pod = template.at("spec")
    container, launch = engine_of(pod, source)
    carry_pod(draft, pod, container, [template.at("metadata")])
    carry_launch(draft, pod, container, launch)
    carry_volumes(draft, pod, container)


def _of_leader_worker_set(draft: Draft, root: Spot, _: Others) -> Mapping[str, str]:
    spec = root.at("spec")
    draft.carry_number("replicas", spec.at("replicas"))
    group = spec.at("leaderWorkerTemplate")
    leader = group.at("leaderTemplate")
    template = leader if leader.is_there else group.at("workerTemplate")
    _template(draft, template, f"LeaderWorkerSet {draft.name}")
    return {
        "size": "how many nodes a group has follows from the plan",
        "workerTemplate": _ALIKE,
        "restartPolicy": "groups restart as a whole; see spec.restart",
        "rolloutStrategy": "see spec.rollout",
        "startupPolicy": "groups start as a whole",
        "networkConfig": "the operator makes the Services",
    }


def _of_storm_service(draft: Draft, root: Spot, _: Others) -> Mapping[str, str]:
    """Read AIBrix' StormService: of prefill and decode the latter, else its one role with vLLM."""
    spec, source = root.at("spec"), f"StormService {draft.name}"
    roles = spec.at("template", "spec", "roles").each()
    served = [role for role in roles if role.at("name").value != "prefill"]
    role = next((role for role in served if role.at("name").value == "decode"), None)
    if role is None and len(served) != 1:
        names = [str(role.at("name").value) for role in served]
        raise InputError([several(source, "roles", names) if names else not_vllm(source)])
    role = role or served[0]
    groups, each = spec.at("replicas").whole(), role.at("replicas").whole()
    if groups is not None or each is not None:
        draft.put("replicas", (1 if groups is None else groups) * (1 if each is None else each))
    role.at("name").take()
    _template(draft, role.at("template"), source)
    return {
        "roles": "the pods of one role serve: prefill and decode run in them, and clients reach "
        "them at status.endpoint",
        "stateful": "each pod has a name that stays",
        "updateStrategy": "see spec.rollout",
    }


def _of_ray_cluster_fleet(draft: Draft, root: Spot, _: Others) -> Mapping[str, str]:
    spec = root.at("spec")
    draft.carry_number("replicas", spec.at("replicas"))
    cluster = spec.at("template", "spec")
    _template(draft, cluster.at("headGroupSpec", "template"), f"RayClusterFleet {draft.name}")
    return {
        "workerGroupSpecs": _ALIKE,
        "rayStartParams": "the engine joins its ranks itself; see spec.engine.executor",
        "rayVersion": "it is the image's",
    }


ReadObject = Callable[[Draft, Spot, Others], Mapping[str, str]]
"""Adds an object to a draft; returns why fields of this kind have no place, by their names."""

READERS: Final[Mapping[str, ReadObject]] = MappingProxyType(
    {
        "Deployment": _of_deployment,
        "LeaderWorkerSet": _of_leader_worker_set,
        "LLMInferenceService": read_llm_inference_service,
        "InferenceService": read_inference_service,
        "Workspace": read_workspace,
        "InferenceSet": read_inference_set,
        "MultiRoleInference": read_multi_role_inference,
        "DynamoGraphDeployment": read_graph,
        "StormService": _of_storm_service,
        "RayClusterFleet": _of_ray_cluster_fleet,
        VALUES: read_values,
    }
)
"""The reader of each kind."""
