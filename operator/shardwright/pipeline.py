"""How do a subject and an inventory become a report, a record and a bundle, for the CLI and the
operator alike? ``resolve`` → ``take_stock`` → ``plan_serving`` (or ``replanning``) → ``record_of``
→ ``bundle_for``.

Functions import the modules that keep, show and render a plan, so that ``plan``, which only plans,
does not wait for them.
"""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shardwright.errors import InputError
from shardwright.extra_groups import what_fits
from shardwright.hardware.inventory import Inventory
from shardwright.planning.planner import choose, consider, make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.survey import Surveyed, survey
from shardwright.planning.ways_out import ways_out
from shardwright.resolving.subject import Subject

if TYPE_CHECKING:
    from shardwright.api.record import PlanRecord
    from shardwright.rendering.bundle import Bundle


def plan_serving(subject: Subject, inventory: Inventory) -> Report:
    """Return the plan, of as many groups as have a place, or why there is none.

    With ``replicas: 0`` it is the plan of one replica, and holds no node.
    """
    return _as_deployed(
        subject, inventory, make_plan(subject.model, inventory, subject.request, subject.traits)
    )


def plan_with_survey(subject: Subject, inventory: Inventory) -> tuple[Report, tuple[Surveyed, ...]]:
    """Return the report of ``plan_serving``, and every candidate that was considered for it."""
    considered = consider(subject.model, inventory, subject.request, subject.traits)
    return _as_deployed(subject, inventory, choose(considered)), survey(considered)


def with_ways_out(subject: Subject, inventory: Inventory, report: Report) -> Report:
    """Return a report that says how many more nodes would do, if there is no room."""
    none = report.outcome if isinstance(report.outcome, NoPlan) else report.lacks
    if none is None or none.lack is None:
        return report

    # The planner itself is asked, so that advice and plan never differ.
    def fits(larger: Inventory) -> bool:
        answer = plan_serving(subject, larger)
        return isinstance(answer.outcome, Plan) and answer.lacks is None

    said = replace(none, ways_out=ways_out(none.lack, inventory, fits))
    if isinstance(report.outcome, NoPlan):
        return replace(report, outcome=said)
    return replace(report, lacks=said)


def engine_status(subject: Subject, deployed: Plan | None = None) -> dict[str, Any]:
    """Return the engine's part of ``status``; with a ``deployed`` plan also its start budget."""
    from shardwright.api.published import DEFAULTS_MAX_ITEMS, ShownEngine, ShownStartBudget  # noqa: PLC0415 - see above
    from shardwright.rendering.pod import start_budget  # noqa: PLC0415 - see above

    budget = start_budget(deployed, subject.deployment) if deployed else None
    shown = ShownEngine(
        name=subject.deployment.engine,
        version=subject.deployment.engine_version,
        image=(subject.deployment.on(deployed.resource) if deployed else subject.deployment).image,
        defaults=list(subject.defaulted[:DEFAULTS_MAX_ITEMS]) or None,
        start_budget=ShownStartBudget(**asdict(budget)) if budget else None,
    )
    return {"engine": shown.model_dump(by_alias=True, exclude_none=True)}


def record_of(subject: Subject, report: Report) -> "PlanRecord | None":
    """Return the plan of record of a report, or None if nothing fits."""
    from shardwright.api.record import PlanRecord  # noqa: PLC0415 - see above

    if isinstance(report.outcome, NoPlan):
        return None
    return PlanRecord(
        input_hash=subject.input_hash,
        cut_hash=subject.cut_hash,
        generation=subject.generation,
        engine_version=subject.default_version,
        plan=report.outcome,
        alternatives=report.alternatives,
        excluded=report.excluded,
        considered=report.considered,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCluster:
    """What the objects of a plan need to know of a cluster: its DNS domain, and the version of its
    scheduler's API (None: the newest that is known).
    """

    domain: str = "cluster.local"
    scheduling_api: str | None = None


ANY_CLUSTER: Final = OnCluster()


def bundle_for(
    subject: Subject,
    plan: Plan,
    cluster: OnCluster = ANY_CLUSTER,
    *,
    ready_pods: int | None = None,
    generations: tuple[int, ...] = (),
) -> "Bundle":
    """Return the objects of a plan.

    ``ready_pods`` counts the pods of groups that have ever been ready, for the disruption budget
    (None: all). ``generations`` are the groups' (empty: the first).

    Raises:
        InputError: The plan can be shown but not run, or the image for its GPUs is not admitted any
            more.
    """
    from shardwright.rendering.render import render  # noqa: PLC0415 - see above

    # Here and not when the spec is read: only the plan says for which GPUs an image is needed.
    if plan.resource in subject.unadmitted:
        raise InputError([subject.unadmitted[plan.resource]])
    scheduling = subject.deployment.cluster.scheduling
    if scheduling and cluster.scheduling_api:
        scheduling = replace(scheduling, api_version=cluster.scheduling_api)
    on = subject.deployment.on(plan.resource)
    here = replace(
        on,
        cluster=replace(on.cluster, cluster_domain=cluster.domain, scheduling=scheduling),
        groups=replace(on.groups, generations=generations, numbers=plan.numbers),
    )
    return render(plan, here, ready_pods=ready_pods)


def _as_deployed(subject: Subject, inventory: Inventory, report: Report) -> Report:
    if isinstance(report.outcome, NoPlan):
        return what_fits(subject, inventory, report)
    return without_groups(report) if subject.intent.replicas == 0 else report


def without_groups(report: Report) -> Report:
    """Return the report with a plan that holds no node."""
    if isinstance(report.outcome, NoPlan):
        return report
    plan = report.outcome
    return replace(
        report,
        outcome=replace(plan, groups=(), numbers=(), layout=replace(plan.layout, replicas=0)),
    )
