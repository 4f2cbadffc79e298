"""Would the scheduler put a pod of the model on this node, by state, node selector and taints?

Affinity, priority, and free CPU and memory are not asked about.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from shardwright.errors import Problem
from shardwright.hardware.capabilities import Capability, RdmaRequest
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.taints import Taint, TaintState
from shardwright.hardware.volume_claims import VolumeClaim

DEFAULT_TOLERATIONS: Final[tuple[Mapping[str, str], ...]] = tuple(
    MappingProxyType(toleration)
    for toleration in (
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {
            "key": "kubernetes.io/arch",
            "operator": "Equal",
            "value": "arm64",
            "effect": "NoSchedule",
        },
        {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    )
)
"""Taints that say no more than "only pods that need a GPU": they keep no node out of a plan.
Source: gpu-operator, GKE, AKS and GB200 node pools as recorded in tests/data/nodes."""


def usual_tolerations(resource: str, architecture: str) -> tuple[Mapping[str, str], ...]:
    """Return the usual tolerations of pods with GPUs of a resource on nodes of an architecture.

    >>> [item["key"] for item in usual_tolerations("nvidia.com/mig-1g.10gb", "amd64")]
    ['nvidia.com/gpu', 'sku']
    >>> [item["key"] for item in usual_tolerations("nvidia.com/gpu", "arm64")]
    ['nvidia.com/gpu', 'kubernetes.io/arch', 'sku']
    """
    vendor = f"{resource.partition('/')[0]}/gpu"
    wanted = {vendor, "sku"}
    return tuple(
        item
        for item in DEFAULT_TOLERATIONS
        if item["key"] in wanted or item.get("value") == architecture
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerms:
    """What one model's pods ask of nodes beside GPUs: labels, tolerations, RDMA devices.

    Without ``compute_domains`` pods of several nodes share no NVLink: every domain ends at its
    node. ``mig_profile`` is of the slices that pods use instead of whole GPUs (empty: they use
    none). ``lacking`` is what the cluster or the image lacks of what they could use. ``claims``
    are those that they mount, as far as they are known.
    """

    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    rdma: RdmaRequest = field(default_factory=RdmaRequest)
    compute_domains: bool = True
    mig_profile: str = ""
    lacking: tuple[Capability, ...] = ()
    claims: tuple[VolumeClaim, ...] = ()


WHOLE: Final = ""
"""The profile of models that use whole GPUs."""


class NodeFilter:
    """What keeps new pods of one model off a node; nodes with the same taints are answered at
    once.
    """

    def __init__(self, terms: PodTerms) -> None:
        self._mig_profile = terms.mig_profile
        self._claims = terms.claims
        self._selector = sorted(terms.selector.items())
        self._tolerations = (*DEFAULT_TOLERATIONS, *terms.tolerations)
        self._tainted: dict[tuple[Taint, ...], tuple[Problem, ...]] = {(): ()}

    def keeps_out(self, node: NodeFacts) -> Problem | None:
        """Return why no new pod of the model may go to this node, lasting reasons first; None when
        it may.
        """
        return (
            cut_otherwise(node, self._mig_profile)
            or _selected(node, self._selector)
            or _volume_elsewhere(node, self._claims)
            or self._by_taint(node.taints, passing=False)
            or _state(node)
            or self._by_taint(node.taints, passing=True)
        )

    def _by_taint(self, taints: tuple[Taint, ...], *, passing: bool) -> Problem | None:
        if taints not in self._tainted:
            self._tainted[taints] = tuple(_tainted(taints, self._tolerations))
        problems = self._tainted[taints]
        return next((item for item in problems if (item.code in _PASSING) is passing), None)


def cut_otherwise(node: NodeFacts, wanted: str) -> Problem | None:
    """Return why a node's GPUs are not of the wanted size: whole, or of a profile."""
    profile = node.gpu.mig_profile
    if profile == wanted:
        return None
    if not wanted:
        return Problem(
            code="MigEnabled",
            what=f"GPUs cut into slices of {profile} (MIG)",
            limit="are for models that ask for them",
            remedy=f"set spec.placement.migProfile to {profile} for a model that fits one, or "
            "label the node nvidia.com/mig.config=all-disabled",
            path="spec.placement.migProfile",
        )
    return Problem(
        code="MigProfileMismatch",
        what=f"slices of {profile}" if profile else "whole GPUs",
        limit=f"must be slices of {wanted}",
        remedy=f"label the node nvidia.com/mig.config=all-{wanted}, or ask for what it has",
        path="spec.placement.migProfile",
    )


def _state(node: NodeFacts) -> Problem | None:
    if node.deleting:
        return Problem(
            code="NodeLeaving",
            what="a node that is being deleted or drained",
            limit="takes no new pods",
            remedy="wait for its replacement",
        )
    if not node.ready:
        return Problem(
            code="NotReady",
            what="a node that is not ready",
            limit="takes no new pods",
            remedy="look at its conditions: kubectl describe node " + node.name,
        )
    if not node.schedulable:
        return Problem(
            code="Cordoned",
            what="a cordoned node",
            limit="takes no new pods",
            remedy="kubectl uncordon " + node.name,
        )
    return None


def _selected(node: NodeFacts, selector: Sequence[tuple[str, str]]) -> Problem | None:
    wrong = next(((key, value) for key, value in selector if node.labels.get(key) != value), None)
    if wrong is None:
        return None
    key, value = wrong
    has = node.labels.get(key)
    return Problem(
        code="SelectorMismatch",
        what=f"node label {key} {has!r}" if has is not None else f"node label {key} (not set)",
        limit=f"must be {value!r}",
        remedy="label the node or change the selector",
        path="spec.placement.nodeSelector",
    )


def _volume_elsewhere(node: NodeFacts, claims: Sequence[VolumeClaim]) -> Problem | None:
    claim = next((each for each in claims if not each.reached_from(node.name, node.labels)), None)
    if claim is None:
        return None
    return Problem(
        code="VolumeElsewhere",
        what=f"the volume of claim {claim.name}",
        limit="is not reached from this node",
        remedy="use a volume that every node reaches, or free GPUs of the nodes that reach it",
        path="spec.model.weights",
    )


def _tainted(
    taints: Sequence[Taint], tolerations: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    for taint in taints:
        if taint.hard and not _tolerated(taint, tolerations):
            yield _PROBLEM_OF[taint.state](taint)


def _reserved(taint: Taint) -> Problem:
    return Problem(
        code="TaintNotTolerated",
        what=f"taint {taint.shown}",
        limit="must be tolerated",
        remedy="add a toleration, or leave the node to those it is reserved for; if a component "
        "takes it away by itself, say so in the setting taintStates",
        path="spec.placement.tolerations",
    )


def _passing(taint: Taint) -> Problem:
    return Problem(
        code="NodeStarting",
        what=f"taint {taint.shown}",
        limit=f"goes by itself: {taint.owner or 'a component'} takes it away",
        remedy="wait; if it stays, look at what should take it away",
    )


def _repaired(taint: Taint) -> Problem:
    return Problem(
        code="GpuUnhealthy",
        what=f"taint {taint.shown} (GPUs under test or repair)",
        limit="is never tolerated",
        remedy=f"wait for {taint.owner}, or look at how far its repair is",
    )


_PROBLEM_OF: Final[Mapping[TaintState, Callable[[Taint], Problem]]] = MappingProxyType(
    {TaintState.RESERVED: _reserved, TaintState.PASSES: _passing, TaintState.REPAIR: _repaired}
)
"""The other states are fields of a node's facts."""

_PASSING: Final = frozenset({"NodeStarting", "GpuUnhealthy"})


def _tolerated(taint: Taint, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """A toleration of everything is none of a state: who means a state names it, and GPUs under
    repair are no one's.
    """
    meant = {TaintState.RESERVED: ("", taint.key), TaintState.PASSES: (taint.key,)}
    keys = meant.get(taint.state, ())
    return any(
        (toleration.get("key") or "") in keys and _matches(taint, toleration)
        for toleration in tolerations
    )


def _matches(taint: Taint, toleration: Mapping[str, Any]) -> bool:
    """By the rules of core/v1: an empty key with Exists covers every taint, an empty effect every
    effect.
    """
    exists = toleration.get("operator") == "Exists"
    if not exists and toleration.get("operator") not in {None, "", "Equal"}:
        return False
    key = toleration.get("key") or ""
    if key != taint.key and not (exists and not key):
        return False
    if (toleration.get("effect") or taint.effect) != taint.effect:
        return False
    return exists or (toleration.get("value") or "") == taint.value
