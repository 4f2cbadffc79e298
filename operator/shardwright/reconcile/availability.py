"""What a plan turns into, and this cluster does not have."""

from collections.abc import Iterable, Mapping
from typing import Any

from shardwright.errors import Problem
from shardwright.reconcile.observed import Observed


def unavailable(
    objects: Iterable[Mapping[str, Any]], observed: Observed
) -> Problem | None:
    """Return why the objects cannot run here: one of them is of a kind that the cluster does not
    have.
    """
    if "ComputeDomain" not in observed.absent_kinds or not any(
        item["kind"] == "ComputeDomain" for item in objects
    ):
        return None
    return Problem(
        code="ComputeDomainUnavailable",
        what="the plan joins pods of several nodes by NVLink",
        limit="needs a ComputeDomain for that",
        gap="which this cluster does not have",
        remedy="install NVIDIA's DRA driver, or set computeDomain to None: NVLink is then planned "
        "to end at the node",
        path="spec.pod.network.computeDomain",
    )
