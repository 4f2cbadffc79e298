"""What surrounds a plan: nodes, the GPUs in use, and ConfigMaps, from files or a cluster.

ShardedModels of files, each in the namespace of its manifest, a flag, or the context.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from shardwright.api.group_version import KIND as RESOURCE_KIND
from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.cli.inputs import Given, name_the_file
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.facts import GpuUsage, NodeFacts, read_claimed
from shardwright.hardware.gpus import NONE, Stated
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import (
    NOTHING_PUBLISHED,
    OUR_KEYS,
    PublishedDevices,
    read_pod,
    read_published,
)
from shardwright.hardware.pools import Reservation
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty
from shardwright.hardware.volume_claims import ClaimsByName, read_claims
from shardwright.rendering.labels import KIND
from shardwright.rendering.names import base_name
from shardwright.resolving.stock import reservations_of

Object = Mapping[str, Any]

WITH_SLICES: Final = "kubectl get nodes,pods,resourceslices,deviceclasses,resourceclaims -A -o json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What surrounds a plan; ``usage`` is None if pods are not known, ``lacking`` is what the
    cluster does not serve, ``claims`` are those that are known.
    """

    nodes: tuple[NodeFacts | NodeExclusion, ...]
    usage: tuple[GpuUsage, ...] | None
    reservations: tuple[Reservation, ...] = ()
    lacking: tuple[Capability, ...] = ()
    claims: ClaimsByName = field(default_factory=dict)


def read_surroundings(
    sources: Iterable[Given], stated: Stated = NONE, files: Sequence[str] = ()
) -> Surroundings:
    """Return the surroundings in the objects of ``--nodes`` files; ``stated`` comes from the
    settings, ``files`` are the names that were given.

    Raises:
        InputError: there is no Node among them.
    """
    objects = tuple(sources)
    nodes, pods, slices, classes, claims = (
        _of_kind(objects, kind)
        for kind in ("Node", "Pod", "ResourceSlice", "DeviceClass", "ResourceClaim")
    )
    mistyped = [
        problem for source in objects if source.kind == "Node" for problem in _mistyped(source)
    ]
    if mistyped:
        raise InputError(mistyped)
    if not nodes:
        raise InputError(
            [_no_nodes(", ".join(sorted({source.file for source in objects}) or files))]
        )
    return Surroundings(
        nodes=read_nodes(nodes, stated, read_published(slices, classes)),
        usage=read_usage(pods, claims) if pods else None,
        reservations=read_reservations(
            (source.content for source in objects if source.kind == "ConfigMap"),
            _of_kind(objects, KIND) or None,
        ),
        claims=claims_in(objects),
    )


def claims_in(sources: Iterable[Given]) -> ClaimsByName:
    """Return the PersistentVolumeClaims of files, with their volumes and storage classes."""
    objects = tuple(sources)
    kinds = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
    return read_claims(*(_of_kind(objects, kind) for kind in kinds))


def _of_kind(objects: Iterable[Given], kind: str) -> list[Object]:
    return [source.content for source in objects if source.kind == kind]


def slices_to_give(sources: Iterable[Given], nodes: Iterable[NodeFacts | NodeExclusion]) -> str:
    """Return a note that ResourceSlices are missing if no node has GPUs, else nothing."""
    objects = tuple(sources)
    without_gpus = all(
        isinstance(node, NodeExclusion) and node.problem.code == "NoAllocatableGpus"
        for node in nodes
    )
    if not without_gpus or any(one.kind == "ResourceSlice" for one in objects):
        return ""
    files = ", ".join(sorted({one.file for one in objects if one.kind == "Node"}))
    return (
        f"no node of {files} has allocatable GPUs, and no ResourceSlices are in it, which have "
        f"the GPUs that a DRA driver serves: if one does, write it with {WITH_SLICES}"
    )


def read_nodes(
    nodes: Iterable[Object], stated: Stated = NONE, published: PublishedDevices = NOTHING_PUBLISHED
) -> tuple[NodeFacts | NodeExclusion, ...]:
    """Return the nodes with GPUs, those that DRA drivers publish included."""
    return tuple(facts for node in nodes if (facts := published.read(node, stated)) is not None)


def read_usage(pods: Iterable[Object], claims: Iterable[Object] = ()) -> tuple[GpuUsage, ...]:
    """Return the GPUs that pods request and ResourceClaims hold."""
    there = tuple(pods)
    requested = (usage for pod in there for usage in read_pod(pod))
    return (*requested, *read_claimed(claims, there))


def read_reservations(
    config_maps: Iterable[Object], models: Iterable[Object] | None = None
) -> tuple[Reservation, ...]:
    """Return the GPUs kept by the plans of record among the ConfigMaps.

    A plan that cannot be read keeps nothing; nor does that of a model that is only planned or gone,
    if ``models`` are known (not None).
    """
    keep = (
        None
        if models is None
        else {uid for uid, plan_only in map(_mode_of, models) if not plan_only}
    )
    ours = (
        item
        for item in config_maps
        if keep is None
        or text_or_empty(_owner_of(mapping(item.get("metadata"))).get("uid")) in keep
    )
    return tuple(reservation for item in ours for reservation in _reservations_of(item))


def _mode_of(model: Object) -> tuple[str, bool]:
    return text_or_empty(mapping(model.get("metadata")).get("uid")), mapping(model.get("spec")).get(
        "mode"
    ) == "PlanOnly"


def _reservations_of(config_map: Object) -> Iterator[Reservation]:
    from shardwright.api.record import RECORD_KEY, PlanRecord, decode  # noqa: PLC0415 - only where models are

    metadata, kept = (
        mapping(config_map.get("metadata")),
        mapping(config_map.get("data")).get(RECORD_KEY),
    )
    model = text_or_empty(_owner_of(metadata).get("name"))
    record = decode(kept) if model and isinstance(kept, str) else None
    if isinstance(record, PlanRecord):
        owner = text_or_empty(metadata.get("namespace")) or "default", base_name(model)
        yield from reservations_of(owner, record.plan, record.generations)


def _owner_of(metadata: Object) -> Object:
    owners = mappings(metadata.get("ownerReferences"))
    return next(
        (
            owner
            for owner in owners
            if owner.get("controller") is True and owner.get("kind") == KIND
        ),
        {},
    )


def _mistyped(source: Given) -> Iterator[Problem]:
    """Yield each of our labels and annotations that is not text: the API server refuses it."""
    metadata = mapping(source.content.get("metadata"))
    for part in ("labels", "annotations"):
        for key, value in mapping(metadata.get(part)).items():
            if str(key).startswith(OUR_KEYS) and not isinstance(value, str):
                shown = json.dumps(value, default=str)
                yield Problem(
                    code="WrongType",
                    path=f"{source.file}: metadata.{part} of {text_or_empty(metadata.get('name'))}",
                    what=f"{key}: {shown:.60}",
                    limit="must be text",
                    remedy="put the value in quotes",
                )


def _no_nodes(files: str) -> Problem:
    return Problem(
        code="NoNodes",
        path=files,
        what="no Node is in it",
        remedy="write one with: kubectl get nodes,pods -A -o json > nodes.json",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel:
    """A ShardedModel of a file, as written and as read."""

    file: str
    content: Mapping[str, Any]
    resource: ShardedModel


def given_models(
    sources: Sequence[Given], files: Sequence[str], flag: str, otherwise: Callable[[], str]
) -> list[GivenModel]:
    """Return the ShardedModels among the objects of files.

    Raises:
        InputError: there is none, or the problems of all of them.
    """
    found: list[GivenModel] = []
    problems: list[Problem] = []
    for source in sources:
        if source.kind == RESOURCE_KIND:
            read = partial(_given, source, flag, otherwise)
            try:
                found.append(name_the_file(source.file, read))
            except InputError as error:
                problems += error.problems
    if not (found or problems):
        problems.append(_no_model(", ".join(files), sources))
    if problems:
        raise InputError(problems)
    return found


def _given(source: Given, flag: str, otherwise: Callable[[], str]) -> GivenModel:
    content = placed_in(source.content, flag, otherwise)
    return GivenModel(file=source.file, content=content, resource=parse_manifest(content))


def _no_model(files: str, sources: Sequence[Given]) -> Problem:
    kinds = sorted({source.kind for source in sources if source.kind})
    return Problem(
        code="NoShardedModel",
        path=files,
        what="no ShardedModel is in it",
        gap=f"found {', '.join(kinds[:5])}" if kinds else "",
        remedy="write one with apiVersion shardwright.io/v1alpha1 and kind ShardedModel",
    )


def placed_in(
    content: Mapping[str, Any], flag: str, otherwise: Callable[[], str]
) -> Mapping[str, Any]:
    """Return a manifest with its namespace: its own, that of ``-n`` (empty: not given), or the
    result of ``otherwise``.

    Raises:
        InputError: its own differs from the flag's, which kubectl refuses, too.
    """
    metadata = mapping(content.get("metadata"))
    named = metadata.get("namespace")
    if flag and named is not None and named != flag:
        what = f"{named!r:.80} is not the namespace of -n, {flag}"
        raise InputError(
            [
                Problem(
                    code="NotTogether",
                    path="metadata.namespace",
                    what=what,
                    remedy="leave one of the two out",
                )
            ]
        )
    namespace = flag or (otherwise() if named is None else "")
    return (
        {**content, "metadata": {**metadata, "namespace": namespace}}
        if named is None and namespace
        else content
    )
