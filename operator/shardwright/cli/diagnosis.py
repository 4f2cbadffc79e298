"""The faults of an installation: from the reading of a cluster to findings, without a clock or a
sentence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from shardwright.cli.fetch_jobs import DiagnosedFetch, of_fetches
from shardwright.cli.findings import (
    Ailment,
    Check,
    Enforcement,
    Examined,
    Finding,
    Result,
    examined,
)
from shardwright.cli.installations import (
    InstalledOperator,
    Rights,
    of_installations,
    of_operators,
    of_rights,
)
from shardwright.errors import Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.scheduling import WHOLE, cut_otherwise
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty, time

LEAST_KUBERNETES: Final = (1, 34)
"""Oldest minor release that is served. Source: kubeVersion of the chart."""

STUCK_MINUTES: Final = 60
"""Unit: minutes. Basis: assumed; the largest models of the catalogue load within half an hour from
a hub at 1 GB/s.
"""

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

_MEANT: Final = frozenset(
    {
        "MigEnabled",
        "VirtualGpu",
        "GpuPassthrough",
        "GpuShared",
        "AcceleratorNotSupported",
    }
)
"""Why a node is left out that somebody has set up so."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedModel:
    """The relevant part of a ShardedModel: its conditions, and the storage classes of the claims
    that are made for it.
    """

    namespace: str
    name: str
    conditions: tuple[Object, ...]
    claims: bool
    storage_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The reading of a cluster; None stands for a forbidden part, of ``enforcement`` also for an
    unmeasured one.

    ``rights`` are those of service accounts, by name; ``claims`` the installations that claims are
    for, by claim; ``node_sets`` the nodes with GPUs of each set (empty: of none).
    """

    version: str
    kubernetes: tuple[int, int] | None
    served: bool
    operators: tuple[InstalledOperator, ...] | None = None
    rights: Mapping[str, Rights] | None = None
    claims: Mapping[str, str] | None = None
    nodes: tuple[NodeFacts | NodeExclusion, ...] | None = None
    node_sets: Mapping[str, tuple[str, ...]] | None = None
    classes: Mapping[str, bool] | None = None
    models: tuple[DiagnosedModel, ...] | None = None
    fetches: tuple[DiagnosedFetch, ...] | None = None
    measured: bool = False
    enforcement: Enforcement | None = None
    trouble: str = field(default="")


def examine(chart: Chart, now: datetime) -> tuple[Examined, ...]:
    """Return all checks in order, each with its findings."""
    return (
        examined(Check.KUBERNETES, chart.kubernetes, _of_kubernetes(chart)),
        examined(Check.RESOURCE, chart.served, _of_resource(chart)),
        examined(
            Check.OPERATOR,
            chart.operators,
            of_operators(chart.operators or (), chart.version),
        ),
        examined(Check.RIGHTS, chart.rights, of_rights(chart.rights or {})),
        examined(
            Check.INSTALLATIONS,
            chart.claims,
            of_installations(
                chart.operators or (), chart.claims or {}, chart.node_sets
            ),
        ),
        examined(Check.NODES, chart.nodes, _of_nodes(chart.nodes or ())),
        examined(
            Check.STORAGE,
            None if chart.models is None else chart.classes,
            _of_storage(chart),
        ),
        examined(Check.MODELS, chart.models, _of_models(chart.models or (), now)),
        examined(Check.FETCHES, chart.fetches, of_fetches(chart.fetches or (), now)),
        _of_policies(chart),
    )


def read_version(said: Object) -> tuple[int, int] | None:
    """Return major and minor of the API server's own version; clouds write a sign behind the minor.

    >>> read_version({"major": "1", "minor": "36+"})
    (1, 36)
    """
    numbers = [text_or_empty(said.get(part)).rstrip("+") for part in ("major", "minor")]
    return (
        (int(numbers[0]), int(numbers[1]))
        if all(part.isascii() and part.isdigit() for part in numbers)
        else None
    )


def read_model(item: Object) -> DiagnosedModel:
    """Read the facts of a ShardedModel that a diagnosis needs, whatever the object holds."""
    metadata = mapping(item.get("metadata"))
    status = mapping(item.get("status"))
    weights = mapping(mapping(mapping(item.get("spec")).get("model")).get("weights"))
    cache = mapping(weights.get("cache"))
    return DiagnosedModel(
        namespace=text_or_empty(metadata.get("namespace")),
        name=text_or_empty(metadata.get("name")),
        conditions=tuple(mappings(status.get("conditions"))),
        claims=bool(cache.get("storage")),
        storage_class=text_or_empty(cache.get("storageClassName")),
    )


def read_class(item: Object) -> tuple[str, bool]:
    """Return the name of a StorageClass, and whether it is the default."""
    metadata = mapping(item.get("metadata"))
    return text_or_empty(metadata.get("name")), mapping(
        metadata.get("annotations")
    ).get(DEFAULT_CLASS) == "true"


def _of_kubernetes(chart: Chart) -> Iterator[Finding]:
    if chart.kubernetes is not None and chart.kubernetes < LEAST_KUBERNETES:
        yield Finding(
            ailment=Ailment.KUBERNETES_TOO_OLD,
            about=".".join(map(str, chart.kubernetes)),
        )


def _of_resource(chart: Chart) -> Iterator[Finding]:
    if not chart.served:
        yield Finding(ailment=Ailment.NOT_SERVED)


def _of_nodes(nodes: tuple[NodeFacts | NodeExclusion, ...]) -> Iterator[Finding]:
    """Yield one finding for all nodes of which the same is to be said."""
    if not any(isinstance(node, NodeFacts) for node in nodes):
        yield Finding(ailment=Ailment.NO_GPUS, wrong=False)
    left_out: dict[tuple[str, str], list[str]] = {}
    warned: dict[str, list[str]] = {}
    for node in nodes:
        problem = _problem_of(node)
        if problem:
            told = (problem.code, problem.sentence())
            left_out.setdefault(told, []).append(_name_of(node))
        elif isinstance(node, NodeFacts):
            for warning in node.warnings:
                warned.setdefault(warning, []).append(node.name)
    for (code, said), names in sorted(left_out.items()):
        yield Finding(
            ailment=Ailment.NODE_LEFT_OUT,
            objects=tuple(sorted(names)),
            about=code,
            said=said,
            wrong=code not in _MEANT,
        )
    for said, names in sorted(warned.items()):
        yield Finding(
            ailment=Ailment.NODE_WARNS,
            objects=tuple(sorted(names)),
            said=said,
            wrong=False,
        )


def _problem_of(node: NodeFacts | NodeExclusion) -> Problem | None:
    """Return why models that ask for nothing special do not use a node."""
    if isinstance(node, NodeExclusion):
        return node.problem
    return cut_otherwise(node, WHOLE)


def _name_of(node: NodeFacts | NodeExclusion) -> str:
    return node.node if isinstance(node, NodeExclusion) else node.name


def _of_storage(chart: Chart) -> Iterator[Finding]:
    classes = chart.classes or {}
    wanting: dict[str, list[str]] = {}
    for model in chart.models or ():
        if model.claims and (
            model.storage_class not in classes
            if model.storage_class
            else not any(classes.values())
        ):
            wanting.setdefault(model.storage_class, []).append(
                f"{model.namespace}/{model.name}"
            )
    for name, models in sorted(wanting.items()):
        ailment = Ailment.CLASS_MISSING if name else Ailment.NO_DEFAULT_CLASS
        yield Finding(ailment=ailment, objects=tuple(sorted(models)), about=name)


def _of_models(models: tuple[DiagnosedModel, ...], now: datetime) -> Iterator[Finding]:
    for model in models:
        conditions = {
            text_or_empty(condition.get("type")): condition
            for condition in model.conditions
        }
        ready = conditions.get("Ready", {})
        stalled = conditions.get("Stalled", {}).get("status") == "True"
        since = time(ready.get("lastTransitionTime"))
        stuck = since is not None and now - since > timedelta(minutes=STUCK_MINUTES)
        if ready.get("status") == "True" or not (
            stalled or (stuck and _is_under_way(conditions))
        ):
            continue
        yield Finding(
            ailment=Ailment.MODEL_STALLED if stalled else Ailment.MODEL_STUCK,
            objects=(model.name,),
            namespace=model.namespace,
            about=text_or_empty(ready.get("reason")),
            said=text_or_empty(ready.get("message")),
        )


def _is_under_way(conditions: Mapping[str, Object]) -> bool:
    """Return whether something should end by itself; a model that was put to rest waits for
    nothing.
    """
    return any(
        conditions.get(name, {}).get("status") == "True"
        for name in ("Reconciling", "Degraded")
    )


def _of_policies(chart: Chart) -> Examined:
    if not chart.measured:
        return Examined(check=Check.NETWORK_POLICIES, result=Result.SKIPPED)
    ailments = {
        Enforcement.IGNORED: Ailment.POLICIES_NOT_ENFORCED,
        Enforcement.ENFORCED: None,
    }
    ailment = ailments.get(
        chart.enforcement or Enforcement.UNCLEAR, Ailment.POLICIES_UNCLEAR
    )
    findings = (Finding(ailment=ailment, said=chart.trouble),) if ailment else ()
    return examined(Check.NETWORK_POLICIES, chart.measured, findings)
