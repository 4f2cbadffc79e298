"""Of which template the pods of a group are, and what another one that is rendered for the same would change.

Pods stay as they are for as long as what is asked of them is the same: spec, plan and engine version. A release of the operator
may render other pods for that. Its template is written to the StatefulSet at once, where it restarts nothing (``OnDelete``), and
comes with the next restart, whoever begins that. So what repairs a StatefulSet is always our own rendering, and nothing that lies
where tenants write has to be believed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shardwright.rendering.hashing import ASKED_HASH, TEMPLATE_HASH

PENDING_MAX: Final = 8
"""How many fields are remembered that a restart changes. Basis: assumed; the first ones tell which part of a pod it is."""

_SOME: Final = ("spec",)  # somebody has taken away what was remembered
_OF_PODS: Final = "spec.template."
_OURS: Final = f"{_OF_PODS}metadata.labels.{TEMPLATE_HASH}"


def template_hash(stateful_set: Mapping[str, Any]) -> str:
    """Return the template hash that a StatefulSet gives its pods."""
    template = stateful_set.get("spec", {}).get("template", {})
    return str((template.get("metadata", {}).get("labels") or {}).get(TEMPLATE_HASH, ""))


def asked_by(stateful_set: Mapping[str, Any]) -> str:
    """Return the hash of what the pods of a StatefulSet are asked for, empty where it does not say."""
    return str((stateful_set.get("metadata", {}).get("annotations") or {}).get(ASKED_HASH, ""))


def pending_fields(drift: Iterable[str], before: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of pods that a restart changes, the first ones in order: those that differ now, and those that did.

    >>> pending_fields(["metadata.annotations.a", "spec.template.spec.containers[engine].args"], ["spec.volumes[scripts]"])
    ('spec.containers[engine].args', 'spec.volumes[scripts]')
    """
    found = {path.removeprefix(_OF_PODS) for path in drift if path.startswith(_OF_PODS) and path != _OURS}
    return tuple(sorted(found.union(before)))[:PENDING_MAX] or _SOME
