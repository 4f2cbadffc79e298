"""Which kinds of object does a plan need that this cluster lacks?"""

from collections.abc import Iterable, Mapping
from typing import Final

from shardwright.errors import Problem
from shardwright.reconcile.observed import Observed
from shardwright.rendering.bundle import KubernetesObject


def unavailable(objects: Iterable[KubernetesObject], observed: Observed) -> Problem | None:
    """Return the problem of the first object whose kind the cluster does not serve, or None."""
    missing = observed.absent_kinds.intersection(str(item["kind"]) for item in objects)
    return next((problem for kind, problem in _PROBLEMS.items() if kind in missing), None)


_PROBLEMS: Final[Mapping[str, Problem]] = {
    "ComputeDomain": Problem(
        code="ComputeDomainUnavailable",
        what="the plan joins pods of several nodes by NVLink",
        limit="needs a ComputeDomain for that",
        gap="which this cluster does not have",
        remedy="install NVIDIA's DRA driver, or set computeDomain to None: NVLink is then planned "
        "to end at the node",
        path="spec.pod.network.computeDomain",
    ),
    "ResourceClaimTemplate": Problem(
        code="DeviceClaimsUnavailable",
        what="the plan's pods claim GPUs that a DRA driver serves",
        limit="needs ResourceClaimTemplates for that",
        gap="which the operator does not see in this cluster",
        remedy="set dra.enabled of the chart, or have a DeviceClass stand for nvidia.com/gpu",
    ),
}
