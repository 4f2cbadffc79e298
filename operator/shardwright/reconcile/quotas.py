"""Would a namespace's ResourceQuotas and LimitRanges admit the pods of a plan?

GPUs are kept for a plan only if its pods may come to hold them. Usage, the coming usage of other
models of the namespace and the plan's need are summed as the API server's admission does. Source:
Kubernetes 1.36 ``pkg/quota/v1/evaluator/core/pods.go`` and ``plugin/pkg/admission/limitranger``.
Other refusals of a pod (webhooks, the cluster's own configuration) only the API server can tell.

Which PriorityClasses are there, and which priority has a model?
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.hardware.suitability import RESOURCES
from shardwright.layouts.layout import GpuQuota
from shardwright.reconcile.drift import amount
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Ceiling

Amounts = Mapping[str, Decimal]
"""Amounts by name of a resource."""

_MUST_BE_STATED: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""What every container must state if a quota limits it. Source: ``PodEvaluator.Constraints``."""

IN_USE: Final = "QuotaInUse"
"""The problem of a quota that would let the plan in if nothing else used it: waiting helps."""

_ONCE: Final = ("pods", "count/pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaScope:
    """Which pods a quota is about; an operator of a label selector for PriorityClasses."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The relevant part of a ResourceQuota."""

    name: str
    hard: Amounts
    used: Amounts
    scopes: tuple[QuotaScope, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One limit of a LimitRange; ``limits`` and ``requests`` are its defaults.

    ``ratios`` are how many times a request a limit may be.
    """

    name: str
    of_pod: bool = False
    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    ratios: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """All quotas and limits of a namespace; if empty, nothing is limited."""

    quotas: tuple[Quota, ...] = ()
    ranges: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.quotas or self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one pod counts for, by the names that quotas use.

    ``unstated`` are resources that not every container states. ``priority_class`` is the one that
    admission gives the pod: "" if it names none and there is no default.
    """

    amounts: Amounts
    unstated: frozenset[str] = frozenset()
    priority_class: str = ""
    best_effort: bool = False
    ends: bool = False


Pods = tuple[Need, int]
"""A number of equal pods."""


def need_of(spec: Mapping[str, Any], allowance: Allowance, default_class: str = "") -> Need:
    """Return what a pod of this spec counts for, with the defaults of LimitRanges.

    A template that somebody has filled may have no containers.
    """
    containers = [_container(item, allowance.ranges) for item in spec.get("containers") or ()]
    # LimitRange defaults first, as in the API server: they are set before quotas are asked.
    before = [_container(item, allowance.ranges) for item in spec.get("initContainers") or ()]
    amounts: dict[str, Decimal] = dict.fromkeys(_ONCE, Decimal(1))
    for name in {name for item in (*containers, *before) for name in item}:
        whole = sum((item.get(name, Decimal(0)) for item in containers), Decimal(0))
        # Init containers run one by one, before the others: the largest counts, not their sum.
        amounts[name] = max((whole, *(item.get(name, Decimal(0)) for item in before)))
    for name in ("cpu", "memory", "ephemeral-storage"):
        # A quota of plain cpu is one of requests.cpu.
        if f"requests.{name}" in amounts:
            amounts[name] = amounts[f"requests.{name}"]
    stated = [
        item.keys() | {name.removeprefix("requests.") for name in item}
        for item in (*containers, *before)
    ]
    computes = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
    return Need(
        amounts=amounts,
        unstated=frozenset(
            name for name in _MUST_BE_STATED if not all(name in item for item in stated)
        ),
        priority_class=spec.get("priorityClassName") or default_class,
        best_effort=not any(item.get(name) for item in (*containers, *before) for name in computes),
        ends=spec.get("activeDeadlineSeconds") is not None,
    )


def range_problem(spec: Mapping[str, Any], allowance: Allowance) -> Problem | None:
    """Return the limit of a LimitRange that keeps a pod of this spec out, or None."""
    containers = [_container(item, allowance.ranges) for item in spec["containers"]]
    before = [_container(item, allowance.ranges) for item in spec.get("initContainers") or ()]
    whole = {
        name: sum((item.get(name, Decimal(0)) for item in containers), Decimal(0))
        for item in containers
        for name in item
    }
    for limit in allowance.ranges:
        for item in (whole,) if limit.of_pod else (*containers, *before):
            yielded = next(_beyond(limit, item), None)
            if yielded is not None:
                return yielded
    return None


def ceilings(allowance: Allowance) -> tuple[Ceiling, ...]:
    """Return the lowest ceilings of LimitRanges on a container's limits."""
    return tuple(
        Ceiling(
            resource=name,
            given_bytes=_lowest(
                item.limits.get(name) for item in allowance.ranges if not item.of_pod
            ),
            most_bytes=_lowest(item.most.get(name) for item in allowance.ranges),
            most_ratio=min(
                (float(item.ratios[name]) for item in allowance.ranges if name in item.ratios),
                default=None,
            ),
        )
        for name in ("memory", "ephemeral-storage")
        if any(
            name in item.limits or name in item.most or name in item.ratios
            for item in allowance.ranges
        )
    )


def _lowest(amounts: Iterable[Decimal | None]) -> int | None:
    return min((int(value) for value in amounts if value is not None), default=None)


def quota_problem(
    allowance: Allowance,
    wanted: Pods,
    own: Sequence[Pods] = (),
    promised: Sequence[Pods] = (),
    kept: Sequence[Pods] = (),
) -> Problem | None:
    """Return which quota keeps the ``wanted`` pods out, with its limit and the gap, or None.

    ``own`` are the model's existing pods: they are used already, and go or are among the wanted or
    kept ones. ``promised`` are pods of other models of the namespace that are still to be made.
    ``kept`` are the plan's other pods, which stay or come again as they were.
    """
    need, pods = wanted
    for quota in allowance.quotas:
        if not _is_about(quota, need):
            continue
        for name, hard in sorted(quota.hard.items()):
            # Whatever room there is: admission refuses a pod that does not state a limited
            # resource.
            if name in need.unstated:
                return _unstated(quota, name)
            if name not in need.amounts:
                continue
            gone = _gone(quota, name, own, promised)
            whole = _sum(quota, name, (wanted, *kept))
            # As admission does: an exceeded quota bars nobody who asks nothing of it.
            if need.amounts[name] * pods and gone + whole > hard:
                return _exceeded(quota, name, gone, whole, runs=any(there for _, there in own))
    return None


def left_of(
    allowance: Allowance, priority_class: str, own: Sequence[Pods], promised: Sequence[Pods]
) -> Iterator[GpuQuota]:
    """Yield how many GPUs each quota leaves pods of a class, as :func:`quota_problem` counts."""
    for quota in allowance.quotas:
        for name, hard in sorted(quota.hard.items()):
            resource = name.removeprefix("requests.")
            if resource not in RESOURCES or resource == name:
                continue
            need = Need(amounts={name: Decimal(1)}, priority_class=priority_class)
            if _is_about(quota, need):
                gone = _gone(quota, name, own, promised)
                left = max(0, int(hard - gone))
                yield GpuQuota(name=f"ResourceQuota {quota.name}", resource=resource, gpus=left)


def _gone(quota: Quota, name: str, own: Sequence[Pods], promised: Sequence[Pods]) -> Decimal:
    gone = (
        quota.used.get(name, Decimal(0))
        # Our own pods end before the new ones come, and others' pods still to be made are not in
        # the quota's count yet.
        - _sum(quota, name, own)
        + _sum(quota, name, promised)
    )
    # A quota's stated usage lags behind: our newest pods may not be in it.
    return max(gone, Decimal(0))


def grows(wanted: Sequence[Pods], before: Sequence[Pods]) -> bool:
    """Return whether pods count for more than others in anything, or under other quotas."""
    for need, count in wanted:
        if not count:
            continue
        # Another class or scope falls under other quotas, however small the pod is.
        if not any(_counts_alike(need, had) for had, _ in before):
            return True
        for name in need.amounts:
            if _amount(name, wanted) > _amount(name, before):
                return True
    return False


def _counts_alike(need: Need, had: Need) -> bool:
    alike = replace(had, amounts=need.amounts, unstated=need.unstated)
    return need == alike and need.unstated <= had.unstated


def _amount(name: str, pods: Iterable[Pods]) -> Decimal:
    whole = Decimal(0)
    for need, count in pods:
        if name in need.amounts:
            whole += need.amounts[name] * count
    return whole


def _container(content: KubernetesObject, ranges: Iterable[Range]) -> dict[str, Decimal]:
    # By the names that quotas use.
    stated = content.get("resources") or {}
    limits, requests = _amounts(stated.get("limits")), _amounts(stated.get("requests"))
    # The API server defaults a request to the limit, before LimitRanges are asked.
    requests = {**limits, **requests}
    for item in ranges:
        if not item.of_pod:
            limits, requests = {**item.limits, **limits}, {**item.requests, **requests}
    return {f"limits.{name}": value for name, value in limits.items()} | {
        f"requests.{name}": value for name, value in requests.items()
    }


def _amounts(quantities: object) -> dict[str, Decimal]:
    found = quantities.items() if isinstance(quantities, Mapping) else ()
    return {str(name): value for name, quantity in found if (value := amount(quantity)) is not None}


def _beyond(limit: Range, item: Amounts) -> Iterator[Problem]:
    of = "pod" if limit.of_pod else "container"
    for name, most in sorted(limit.most.items()):
        has = item.get(f"limits.{name}")
        if has is None or has > most:
            yield _out_of_range(limit, f"allows each {of} {_said(most)} {name}", _stated(has))
    for name, least in sorted(limit.least.items()):
        has = item.get(f"requests.{name}")
        # A minimum for pods refuses a pod whose containers state nothing; a container has the
        # minimum as its default request.
        if has is None or has < least:
            yield _out_of_range(limit, f"wants {_said(least)} {name} of each {of}", _stated(has))
    for name, ratio in sorted(limit.ratios.items()):
        request, has = item.get(f"requests.{name}"), item.get(f"limits.{name}")
        allows = f"allows each {of} a limit of {name} of {_said(ratio)} times its request"
        if not request or not has:
            missing = "limit" if request else "request"
            yield _out_of_range(
                limit, allows, f"the pods of the plan have a {of} that states no {missing} of it"
            )
        elif has > request * ratio:
            yield _out_of_range(
                limit, allows, f"the pods of the plan have {_said(has)} for {_said(request)}"
            )


def _stated(has: Decimal | None) -> str:
    return (
        "the pods of the plan state none"
        if has is None
        else f"the pods of the plan have {_said(has)}"
    )


def _is_about(quota: Quota, need: Need) -> bool:
    return all(_matches(scope, need) for scope in quota.scopes)


def _matches(scope: QuotaScope, need: Need) -> bool:
    if scope.name == "PriorityClass":
        return _has_class(scope, need.priority_class)
    # Source: the scopes of ResourceQuota; the others (CrossNamespacePodAffinity) need terms that no
    # pod of ours has.
    facts = {
        "Terminating": need.ends,
        "NotTerminating": not need.ends,
        "BestEffort": need.best_effort,
        "NotBestEffort": not need.best_effort,
    }
    return facts.get(scope.name, False)  # no pod of ours is of any other scope


def _has_class(scope: QuotaScope, name: str) -> bool:
    if scope.operator == "Exists":
        return bool(name)
    if scope.operator == "DoesNotExist":
        return not name
    return (name in scope.values) is (scope.operator == "In")


def _sum(quota: Quota, name: str, pods: Iterable[Pods]) -> Decimal:
    return _amount(name, (item for item in pods if _is_about(quota, item[0])))


def _exceeded(quota: Quota, name: str, gone: Decimal, whole: Decimal, *, runs: bool) -> Problem:
    meanwhile = "it holds no GPU"
    if runs:
        meanwhile = "running groups are kept"
    return Problem(
        code=IN_USE if whole <= quota.hard[name] else "QuotaExceeded",
        what=f"ResourceQuota {quota.name}",
        limit=f"allows {_said(quota.hard[name])} {name}, of which {_said(gone)} are used or "
        "promised to other models",
        gap=f"the plan needs {_said(whole)}, {_said(gone + whole - quota.hard[name])} too many; "
        f"{meanwhile} meanwhile",
        remedy="have the quota raised, ask for fewer replicas or GPUs, or delete what uses it",
    )


def _unstated(quota: Quota, name: str) -> Problem:
    return Problem(
        code="QuotaExceeded",
        what=f"ResourceQuota {quota.name}",
        limit=f"lets only pods in that state {name}",
        gap="the pods of the plan do not",
        remedy="state it in spec.pod.resources, or add a LimitRange with a default for "
        f"{name.rpartition('.')[2]}",
    )


def _out_of_range(limit: Range, said: str, gap: str) -> Problem:
    return Problem(
        code="QuotaExceeded",
        what=f"LimitRange {limit.name}",
        limit=said,
        gap=gap,
        remedy="have the LimitRange changed, or state other spec.pod.resources",
    )


def _said(value: Decimal) -> str:
    # normalize alone would say 1E+1 of ten.
    return f"{value.normalize():f}"


def read_quota(content: KubernetesObject) -> Quota:
    """Return a ResourceQuota; before its status is there, nothing counts as used."""
    spec, status = content.get("spec") or {}, content.get("status") or {}
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [QuotaScope(name=str(name)) for name in spec.get("scopes") or ()]
    scopes += [
        QuotaScope(
            name=item["scopeName"],
            operator=item["operator"],
            values=frozenset(item.get("values") or ()),
        )
        for item in selected
    ]
    name = content["metadata"]["name"]
    return Quota(
        name=name,
        hard=_amounts(spec.get("hard")),
        used=_amounts(status.get("used")),
        scopes=tuple(scopes),
    )


def read_ranges(content: KubernetesObject) -> tuple[Range, ...]:
    """Return the limits of a LimitRange that are of pods or containers."""
    items = (content.get("spec") or {}).get("limits") or ()
    return tuple(
        Range(
            name=content["metadata"]["name"],
            of_pod=item["type"] == "Pod",
            least=_amounts(item.get("min")),
            most=_amounts(item.get("max")),
            limits=_amounts(item.get("default")),
            requests=_amounts(item.get("defaultRequest")),
            ratios=_amounts(item.get("maxLimitRequestRatio")),
        )
        for item in items
        if item["type"] in {"Pod", "Container"}
    )


PATH = "spec.pod.priorityClassName"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """The relevant part of a PriorityClass: greater values go first; ``is_default``: it applies to
    pods that name none.
    """

    value: int
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """The PriorityClasses of the cluster by name."""

    classes: Mapping[str, PriorityClass] = field(default_factory=dict)

    def changed(self, changes: Mapping[str, PriorityClass | None]) -> "Priorities":
        """Return the priorities after changes by name; None for a deleted class."""
        whole = {**self.classes, **changes}
        return replace(
            self, classes={name: found for name, found in whole.items() if found is not None}
        )

    def value_of(self, name: str | None) -> int:
        """Return the priority of pods that name this class, or none; 0 for a missing class.

        Of several default classes the one with the least value counts. Source: the admission plugin
        Priority of Kubernetes.
        """
        if name is not None:
            # A missing class is a problem of its own (problem_of); the place in the queue must not
            # depend on it.
            return self.classes[name].value if name in self.classes else 0
        return min((item.value for item in self.classes.values() if item.is_default), default=0)

    @property
    def default(self) -> str:
        """Return the class of pods that name none, or ""."""
        found = ((item.value, name) for name, item in self.classes.items() if item.is_default)
        return min(found, default=(0, ""))[1]

    def problem_of(self, name: str | None) -> Problem | None:
        """Return why pods that name this class cannot be created, or None if they can."""
        if name is None or name in self.classes:
            return None
        return Problem(
            code="PriorityClassMissing",
            path=PATH,
            what=f"PriorityClass {name}",
            limit="does not exist in this cluster",
            gap="the API server refuses its pods",
            remedy="create it, name an existing one "
            f"(kubectl get priorityclass), or leave {PATH} out",
        )
