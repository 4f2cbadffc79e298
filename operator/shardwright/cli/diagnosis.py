"""What is wrong with an installation: from what was read of a cluster to findings, without a clock or a sentence."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty, time

LEAST_KUBERNETES: Final = (1, 31)
"""Oldest minor release that is served. Source: kubeVersion of the chart."""

STUCK_MINUTES: Final = 60
"""Unit: minutes. Basis: assumed; the largest models of the catalogue load within half an hour from a hub at 1 GB/s."""

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

WATCHES: Final = "--watch-namespaces="
"""How an operator is told the namespaces that it is for."""

_MEANT: Final = frozenset({"MigEnabled", "VirtualGpu", "GpuPassthrough", "GpuShared", "AcceleratorNotSupported", "OtherNodeSet"})
"""Why a node is left out that somebody has set up so."""

Object = Mapping[str, Any]


class Check(StrEnum):
    """What is looked at, in the order in which it is said."""

    KUBERNETES = "Kubernetes"
    RESOURCE = "ShardedModels"
    OPERATOR = "InstalledOperator"
    RIGHTS = "Rights"
    NODES = "Nodes"
    STORAGE = "Storage"
    MODELS = "Models"
    NETWORK_POLICIES = "NetworkPolicies"


class Ailment(StrEnum):
    """What can be found."""

    KUBERNETES_TOO_OLD = "KubernetesTooOld"
    NOT_SERVED = "NotServed"
    NOT_INSTALLED = "NotInstalled"
    NOT_READY = "NotReady"
    NOBODY_LEADS = "NobodyLeads"
    OTHER_VERSION = "OtherVersion"
    RIGHTS_MISSING = "RightsMissing"
    NO_GPUS = "NoGpus"
    NODE_LEFT_OUT = "NodeLeftOut"
    NODE_WARNS = "NodeWarns"
    CLASS_MISSING = "StorageClassMissing"
    NO_DEFAULT_CLASS = "NoDefaultStorageClass"
    MODEL_STALLED = "ModelStalled"
    MODEL_STUCK = "ModelStuck"
    POLICIES_NOT_ENFORCED = "NetworkPoliciesNotEnforced"
    POLICIES_UNCLEAR = "NetworkPoliciesUnclear"


class Result(StrEnum):
    """How a check ended."""

    FINE = "Fine"
    NOTED = "Noted"  #: something to know, which may be as it was meant
    WRONG = "Wrong"
    UNREAD = "Unread"  #: whoever asks may not read what it takes
    SKIPPED = "Skipped"  #: it was not asked for


class Enforcement(StrEnum):
    """What two pods have found of a NetworkPolicy between them."""

    ENFORCED = "Enforced"
    IGNORED = "Ignored"
    UNCLEAR = "Unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or to be known: which objects it is about, and what others say of it."""

    ailment: Ailment
    objects: tuple[str, ...] = ()
    namespace: str = ""
    about: str = ""
    said: str = ""
    wrong: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One check with what it has found."""

    check: Check
    result: Result
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledOperator:
    """One installation: its Deployment's name, version and pods, and who holds its Lease (None: that may not be read).

    ``watches`` are the namespaces that it is for, all where none is named.
    """

    namespace: str
    name: str
    version: str
    account: str
    wanted: int
    ready: int
    holder: str | None
    watches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedModel:
    """What matters of a ShardedModel: its conditions, and the storage classes of the claims that are made for it."""

    namespace: str
    name: str
    conditions: tuple[Object, ...]
    claims: bool
    storage_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What was read of a cluster; None stands for what may not be read, ``enforcement`` also for what was not measured."""

    version: str
    kubernetes: tuple[int, int] | None
    served: bool
    operators: tuple[InstalledOperator, ...] | None = None
    missing_rights: Mapping[str, tuple[str, ...]] | None = None
    nodes: tuple[NodeFacts | NodeExclusion, ...] | None = None
    classes: Mapping[str, bool] | None = None
    models: tuple[DiagnosedModel, ...] | None = None
    measured: bool = False
    enforcement: Enforcement | None = None
    trouble: str = field(default="")


def examine(chart: Chart, now: datetime) -> tuple[Examined, ...]:
    """Return all checks in order, each with what it finds."""
    return (
        _examined(Check.KUBERNETES, chart.kubernetes, _of_kubernetes(chart)),
        _examined(Check.RESOURCE, chart.served, _of_resource(chart)),
        _examined(Check.OPERATOR, chart.operators, _of_operators(chart)),
        _examined(Check.RIGHTS, chart.missing_rights, _of_rights(chart)),
        _examined(Check.NODES, chart.nodes, _of_nodes(chart.nodes or ())),
        _examined(Check.STORAGE, None if chart.models is None else chart.classes, _of_storage(chart)),
        _examined(Check.MODELS, chart.models, _of_models(chart.models or (), now)),
        _of_policies(chart),
    )


def read_version(said: Object) -> tuple[int, int] | None:
    """Return major and minor of what the API server says of itself; clouds write a sign behind the minor.

    >>> read_version({"major": "1", "minor": "36+"})
    (1, 36)
    """
    numbers = [text_or_empty(said.get(part)).rstrip("+") for part in ("major", "minor")]
    return (int(numbers[0]), int(numbers[1])) if all(part.isascii() and part.isdigit() for part in numbers) else None


def read_operator(deployment: Object, lease: Object | None, *, lease_known: bool) -> InstalledOperator:
    """Return what matters of an operator's Deployment and of the Lease of its name."""
    metadata, spec = mapping(deployment.get("metadata")), mapping(deployment.get("spec"))
    pods, status = mapping(mapping(spec.get("template")).get("spec")), mapping(deployment.get("status"))
    wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    return InstalledOperator(
        namespace=text_or_empty(metadata.get("namespace")),
        name=text_or_empty(metadata.get("name")),
        version=text_or_empty(mapping(metadata.get("labels")).get("app.kubernetes.io/version")),
        account=text_or_empty(pods.get("serviceAccountName")),
        wanted=wanted if isinstance(wanted, int) else 1,
        ready=ready if isinstance(ready, int) else 0,
        holder=text_or_empty(mapping((lease or {}).get("spec")).get("holderIdentity")) if lease_known else None,
        watches=_watched(pods),
    )


def _watched(pods: Object) -> tuple[str, ...]:
    words = (str(word) for container in mappings(pods.get("containers")) for word in container.get("args") or ())
    return next((tuple(word.removeprefix(WATCHES).split(",")) for word in words if word.startswith(WATCHES)), ())


def read_model(item: Object) -> DiagnosedModel:
    """Return what matters of a ShardedModel, whatever it holds."""
    metadata, status = mapping(item.get("metadata")), mapping(item.get("status"))
    weights = mapping(mapping(mapping(item.get("spec")).get("model")).get("weights"))
    cache = mapping(mapping(weights.get("huggingFace")).get("cache"))
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
    return text_or_empty(metadata.get("name")), mapping(metadata.get("annotations")).get(DEFAULT_CLASS) == "true"


def _examined(check: Check, read: object, findings: Iterable[Finding]) -> Examined:
    if read is None:
        return Examined(check=check, result=Result.UNREAD)
    found = tuple(findings)
    if any(finding.wrong for finding in found):
        return Examined(check=check, result=Result.WRONG, findings=found)
    return Examined(check=check, result=Result.NOTED if found else Result.FINE, findings=found)


def _of_kubernetes(chart: Chart) -> Iterator[Finding]:
    if chart.kubernetes is not None and chart.kubernetes < LEAST_KUBERNETES:
        yield Finding(ailment=Ailment.KUBERNETES_TOO_OLD, about=".".join(map(str, chart.kubernetes)))


def _of_resource(chart: Chart) -> Iterator[Finding]:
    if not chart.served:
        yield Finding(ailment=Ailment.NOT_SERVED)


def _of_operators(chart: Chart) -> Iterator[Finding]:
    if not chart.operators:
        yield Finding(ailment=Ailment.NOT_INSTALLED)
    for one in chart.operators or ():
        if one.ready == 0 or one.ready < one.wanted:
            ready = f"{one.ready} of {one.wanted}"
            yield Finding(
                ailment=Ailment.NOT_READY, objects=(one.name,), namespace=one.namespace, about=ready, wrong=one.ready == 0
            )
        if one.holder == "":
            yield Finding(ailment=Ailment.NOBODY_LEADS, objects=(one.name,), namespace=one.namespace)
        if one.version != chart.version:
            yield Finding(
                ailment=Ailment.OTHER_VERSION, objects=(one.name,), namespace=one.namespace, about=one.version, wrong=False
            )


def _of_rights(chart: Chart) -> Iterator[Finding]:
    for account, missing in (chart.missing_rights or {}).items():
        if missing:
            yield Finding(ailment=Ailment.RIGHTS_MISSING, objects=missing, about=account)


def _of_nodes(nodes: tuple[NodeFacts | NodeExclusion, ...]) -> Iterator[Finding]:
    """Yield one finding for all nodes of which the same is to be said."""
    if not any(isinstance(node, NodeFacts) for node in nodes):
        yield Finding(ailment=Ailment.NO_GPUS, wrong=False)
    left_out: dict[tuple[str, str], list[str]] = {}
    warned: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, NodeExclusion):
            left_out.setdefault((node.problem.code, node.problem.sentence()), []).append(node.node)
        else:
            for warning in node.warnings:
                warned.setdefault(warning, []).append(node.name)
    for (code, said), names in sorted(left_out.items()):
        yield Finding(
            ailment=Ailment.NODE_LEFT_OUT, objects=tuple(sorted(names)), about=code, said=said, wrong=code not in _MEANT
        )
    for said, names in sorted(warned.items()):
        yield Finding(ailment=Ailment.NODE_WARNS, objects=tuple(sorted(names)), said=said, wrong=False)


def _of_storage(chart: Chart) -> Iterator[Finding]:
    classes = chart.classes or {}
    wanting: dict[str, list[str]] = {}
    for model in chart.models or ():
        if model.claims and (model.storage_class not in classes if model.storage_class else not any(classes.values())):
            wanting.setdefault(model.storage_class, []).append(f"{model.namespace}/{model.name}")
    for name, models in sorted(wanting.items()):
        ailment = Ailment.CLASS_MISSING if name else Ailment.NO_DEFAULT_CLASS
        yield Finding(ailment=ailment, objects=tuple(sorted(models)), about=name)


def _of_models(models: tuple[DiagnosedModel, ...], now: datetime) -> Iterator[Finding]:
    for model in models:
        conditions = {text_or_empty(condition.get("type")): condition for condition in model.conditions}
        ready = conditions.get("Ready", {})
        stalled = conditions.get("Stalled", {}).get("status") == "True"
        since = time(ready.get("lastTransitionTime"))
        stuck = since is not None and now - since > timedelta(minutes=STUCK_MINUTES)
        if ready.get("status") == "True" or not (stalled or (stuck and _is_under_way(conditions))):
            continue
        yield Finding(
            ailment=Ailment.MODEL_STALLED if stalled else Ailment.MODEL_STUCK,
            objects=(model.name,),
            namespace=model.namespace,
            about=text_or_empty(ready.get("reason")),
            said=text_or_empty(ready.get("message")),
        )


def _is_under_way(conditions: Mapping[str, Object]) -> bool:
    """Return whether something should end by itself; a model that was put to rest waits for nothing."""
    return any(conditions.get(name, {}).get("status") == "True" for name in ("Reconciling", "Degraded"))


def _of_policies(chart: Chart) -> Examined:
    if not chart.measured:
        return Examined(check=Check.NETWORK_POLICIES, result=Result.SKIPPED)
    ailments = {Enforcement.IGNORED: Ailment.POLICIES_NOT_ENFORCED, Enforcement.ENFORCED: None}
    ailment = ailments.get(chart.enforcement or Enforcement.UNCLEAR, Ailment.POLICIES_UNCLEAR)
    findings = (Finding(ailment=ailment, said=chart.trouble),) if ailment else ()
    return _examined(Check.NETWORK_POLICIES, chart.measured, findings)
