"""Which template do a group's pods have, and what would another rendering change?

Pods stay while the request is the same: spec, plan and engine version. Another release may render
other pods for it, and a LimitRange may change: such a template is written to the StatefulSet at
once, where it restarts nothing (``OnDelete``), and comes with the next restart. So a StatefulSet is
always repaired by our own rendering, and nothing that lies where tenants write has to be believed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.hashing import ASKED_HASH, OWN_HASH, TEMPLATE_HASH

PENDING_MAX: Final = 24
"""How many fields are remembered that a restart changes. Basis: assumed; a release changes few."""

_SOME: Final = ("spec",)  # somebody has taken away what was remembered
OF_PODS: Final = "spec.template."
_HASHES: Final = frozenset(f"{OF_PODS}metadata.labels.{name}" for name in (TEMPLATE_HASH, OWN_HASH))


def template_hash(stateful_set: KubernetesObject) -> str:
    """Return the template hash that a StatefulSet gives its pods."""
    return str(_labels_of_pods(stateful_set).get(TEMPLATE_HASH, ""))


def own_hash(stateful_set: KubernetesObject) -> str:
    """Return the template hash of a StatefulSet without LimitRanges and a pull policy."""
    return own_hash_in(_labels_of_pods(stateful_set))


def own_hash_in(labels: Mapping[str, Any]) -> str:
    """Return the template hash that labels of pods would have without LimitRanges.

    >>> (
    ...     own_hash_in({"shardwright.io/template-hash": "a"}),
    ...     own_hash_in({"shardwright.io/own-template-hash": "b"}),
    ... )
    ('a', 'b')
    """
    # The second label is left out where it would be the same.
    return str(labels.get(OWN_HASH) or labels.get(TEMPLATE_HASH, ""))


def _labels_of_pods(stateful_set: KubernetesObject) -> Mapping[str, Any]:
    return stateful_set.get("spec", {}).get("template", {}).get("metadata", {}).get("labels") or {}


def asked_by(stateful_set: KubernetesObject) -> str:
    """Return the hash of the request for the pods of a StatefulSet, or ""."""
    return str((stateful_set.get("metadata", {}).get("annotations") or {}).get(ASKED_HASH, ""))


def asks_the_same(rendered: KubernetesObject, live: KubernetesObject) -> bool:
    """Return whether the pods of a live StatefulSet were made for what is wanted now."""
    return made_for(live, asked_by(rendered), own_hash(rendered))


def made_for(live: KubernetesObject, asked: str, own: str = "") -> bool:
    """Return whether the pods of a live StatefulSet were made for a request. ``own`` is the
    template hash without LimitRanges that it has now (empty: nobody has rendered it).
    """
    mark = asked_by(live)
    # Somebody has taken the mark away: the template tells, as that of another request is never
    # written while pods stay (ADR 15).
    return asked != "" and (mark == asked if mark else own_hash(live) == own != "")


def pending_fields(drift: Iterable[str], before: Iterable[str]) -> tuple[str, ...]:
    """Return the pod fields that a restart changes: those that differ now, and those that did.

    >>> pending_fields(
    ...     ["metadata.annotations.a", "spec.template.spec.containers[engine].args"],
    ...     ["spec.volumes[scripts]"],
    ... )
    ('spec.containers[engine].args', 'spec.volumes[scripts]')
    """
    found = {
        path.removeprefix(OF_PODS)
        for path in drift
        if path.startswith(OF_PODS) and path not in _HASHES
    }
    # Once the new template is written, the live object no longer differs, and the pods still do.
    return tuple(sorted(found.union(before)))[:PENDING_MAX] or _SOME
