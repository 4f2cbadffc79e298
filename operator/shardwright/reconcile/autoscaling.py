"""Who chooses the number of groups of a model that is to be scaled?

The scale subresource is the one door. An autoscaler reads the number there before it does anything,
and finds none while it is planned: so the planned one is handed over, once, through the same door.
From then on it is the autoscaler's.
"""

from collections.abc import Iterator
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.errors import Problem
from shardwright.planning.report import Plan
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.snapshot import ModelResource
from shardwright.reconcile.writes import HandOver
from shardwright.resolving.subject import Subject

_PATH: Final = "spec.scaling"
_NO_PROMETHEUS: Final = Problem(
    code="PrometheusNotNamed",
    path=_PATH,
    what="KEDA",
    limit="needs the address of the Prometheus that it asks for the load",
    remedy="set prometheus.url of the chart; until then spec.replicas says how many groups run, or "
    "the plan",
)
_NO_KEDA: Final = Problem(
    code="KedaUnavailable",
    path=_PATH,
    what="scaling",
    limit="needs ScaledObjects (keda.sh/v1alpha1)",
    gap="which the operator does not see in this cluster",
    remedy="install KEDA; until then spec.replicas says how many groups run, or the plan",
)
_NO_NUMBER: Final = Problem(
    code="LoadNotPlanned",
    path=_PATH,
    what="the plan",
    limit="must say how many requests a group holds within its limits",
    gap="and says none",
    remedy="leave scaling out and set spec.replicas, or raise the limits of spec.objective",
)


def hindrance(subject: Subject, plan: Plan | None, observed: Observed) -> Problem | None:
    """Return why no autoscaler is told of a model that is to be scaled, or None."""
    scaling = subject.deployment.autoscaling
    if scaling is None or plan is None:
        return None
    if not scaling.prometheus:
        return _NO_PROMETHEUS
    if "ScaledObject" in observed.absent_kinds:
        return _NO_KEDA
    return None if plan.replica_requests else _NO_NUMBER


def handed_over(
    resource: ModelResource, subject: Subject, record: PlanRecord, observed: Observed
) -> Iterator[HandOver]:
    """Yield the write that gives the planned number of a model to its autoscaler."""
    wanted = subject.deployment.autoscaling is not None and subject.intent.replicas is None
    if wanted and hindrance(subject, record.plan, observed) is None:
        yield HandOver(
            name=resource.owner.name,
            namespace=resource.owner.namespace,
            version=resource.version,
            replicas=subject.intent.wants(record.plan),
        )
