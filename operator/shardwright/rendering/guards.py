"""What a release puts before an engine to protect others: a label of the pods says which they have.

Pods that another release has made may lack what this one adds. Their model's status says so, and no
revision is restored without it.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final

from shardwright.engines.registry import ENGINES
from shardwright.rendering import volumes
from shardwright.rendering.deployment import Deployment

GUARDS: Final = "shardwright.io/guards"


class Guard(StrEnum):
    """A protection of pods, by its word in the label."""

    KEY = "key"  # every request brings the API key, but for health and metrics
    MEDIA = "media"  # requests have media fetched from the domains of the spec alone
    FILES = "files"  # the engine can write no weights, and has no token of the hub


def guards_for(deployment: Deployment) -> frozenset[Guard]:
    """Return the guards that this release gives the pods of a deployment."""
    engine = ENGINES[deployment.engine]
    has = {
        Guard.KEY: deployment.serving.api_key is not None and engine.loads_guard,
        Guard.MEDIA: "allowed-media-domains" not in engine.rules.policy.missing,
        Guard.FILES: bool(volumes.downloads(deployment)),
    }
    return frozenset(guard for guard, stands in has.items() if stands)


def guard_label(guards: Collection[Guard]) -> dict[str, str]:
    """Return the label that names guards, nothing without any."""
    return {GUARDS: ".".join(one for one in Guard if one in guards)} if guards else {}


def guards_in(labels: Mapping[str, Any]) -> frozenset[Guard]:
    """Return the guards that labels of a pod name."""
    words = str(labels.get(GUARDS, "")).split(".")
    return frozenset(one for one in Guard if one in words)
