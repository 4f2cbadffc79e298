"""How do a subject and an inventory become a report, a record and a bundle, for the CLI and the
operator alike? ``resolve`` → ``take_stock`` → ``plan_serving`` (or ``replanning``) → ``record_of``
→ ``bundle_for``.

Functions import the modules that keep, show and render a plan, so that ``plan``, which only plans,
does not wait for them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shardwright.errors import InputError, Problem
from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.extra_groups import in_chosen_number, what_fits
from shardwright.planning.comparison import Comparison, compare, without_pins
from shardwright.planning.gain import pool_of
from shardwright.planning.planner import Considered, choose, consider, make_plan
from shardwright.planning.report import NoPlan, Plan, Report, WaysOut, WithoutFields
from shardwright.planning.survey import Surveyed, survey
from shardwright.planning.ways_out import AskWithout, FieldPaths, Offer, costly, fitting, ways_out
from shardwright.resolving.subject import Subject
from shardwright.resolving.wishes import PINS, Wish, leave_out, wishes_of

if TYPE_CHECKING:
    from shardwright.api.record import PlanRecord
    from shardwright.rendering.bundle import Bundle


def plan_serving(subject: Subject, inventory: Inventory) -> Report:
    """Return the plan, of as many groups as have a place, or why there is none.

    With ``replicas: 0`` it is the plan that would run, and holds no node.
    """
    considered = consider(subject.model, inventory, subject.request, subject.traits)
    return _with_pair(subject, considered, _as_deployed(subject, inventory, choose(considered)))


def plan_with_survey(subject: Subject, inventory: Inventory) -> tuple[Report, tuple[Surveyed, ...]]:
    """Return the report of ``plan_serving``, and every candidate that was considered for it."""
    considered = consider(subject.model, inventory, subject.request, subject.traits)
    report = _as_deployed(subject, inventory, choose(considered))
    return _with_pair(subject, considered, report), survey(considered)


def compared(subject: Subject, inventory: Inventory, report: Report) -> Comparison | None:
    """Return how the plan stands to the best one for the same load on the same inventory; None if
    no degree is pinned, none is to run, or nothing fits at all.
    """
    space, free = subject.request.space, without_pins(subject.request.space)
    if subject.deployment.half:
        free = replace(free, pipeline=space.pipeline)  # stages hand over no K/V
    # Without pins nothing of a stated model is known.
    if space.pins == free.pins or subject.intent.replicas == 0 or subject.model.stated:
        return None
    request = replace(subject.request, space=free)
    best = make_plan(subject.model, inventory, request, subject.traits).outcome
    return compare(report.outcome, best, inventory, request) if isinstance(best, Plan) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The stock for a subject, and for it with other terms of its pods (None: it is not known).

    Of GPUs that somebody ``named`` there may be ``more``: stocks, and how to name their GPUs.
    """

    inventory: Inventory
    restock: Callable[[Subject], Inventory | None]
    more: Iterable[tuple[str, Inventory]] = ()
    named: bool = False


def with_ways_out(subject: Subject, supply: Supply, report: Report) -> Report:
    """Return a report that says what would help: fields of the user's own to leave out and, if
    there is no room, how many more nodes would do.
    """
    outcome = report.outcome
    left_out: tuple[WithoutFields, ...] = ()
    if isinstance(outcome, Plan):
        report = replace(report, costly=without_costly(subject, supply, outcome))
    else:
        left_out = without_barring(subject, supply)
    none = report.lacks if isinstance(outcome, Plan) else outcome
    if none is None or (none.lack is None and not left_out):
        return report

    # The planner itself is asked, so that advice and plan never differ.
    def fits(larger: Inventory) -> bool:
        answer = plan_serving(subject, larger)
        return isinstance(answer.outcome, Plan) and answer.lacks is None

    ways = WaysOut()
    if none.lack is not None and supply.named:
        ways = WaysOut(gpus=next((named for named, stock in supply.more if fits(stock)), ""))
    elif none.lack is not None:
        ways = ways_out(none.lack, supply.inventory, fits)
    said = replace(none, ways_out=replace(ways, without=left_out))
    if isinstance(outcome, NoPlan):
        return replace(report, outcome=said)
    return replace(report, lacks=said)


def without_barring(subject: Subject, supply: Supply) -> tuple[WithoutFields, ...]:
    """Return the user's own fields without which a subject has a plan, if it has none."""
    wishes = _at_stake(subject, supply.inventory)
    ask = _asker(subject, wishes, supply)
    return fitting([wish.field for wish in wishes], ask)


def without_costly(subject: Subject, supply: Supply, plan: Plan) -> tuple[WithoutFields, ...]:
    """Return the user's own fields that cost a plan a third or more."""
    pool = supply.inventory.named(plan.pool)
    # The pool of a plan of record may be gone.
    if pool is None or not plan.groups or subject.model.stated:
        return ()
    wishes = [wish for wish in _at_stake(subject, supply.inventory) if wish.weighed]
    fields = [wish.field for wish in wishes]
    pins = [field for field in fields if field in PINS]
    ask = _asker(subject, wishes, supply)
    return costly(fields, pins, ask, Offer(plan=plan, pool=pool), subject.request)


def stocks_beside(subject: Subject, inventory: Inventory) -> tuple[Subject, ...]:
    """Return the subject on all terms of its pods that it may be asked on without one field, or
    without all of them.
    """
    wishes = _at_stake(subject, inventory)
    fields = tuple(wish.field for wish in wishes)
    others = [leave_out(subject, wishes, some) for some in (*zip(fields, strict=True), fields)]
    return tuple(
        other
        for index, other in enumerate(others)
        if all(other.terms != before.terms for before in (subject, *others[:index]))
    )


def _at_stake(subject: Subject, inventory: Inventory) -> tuple[Wish, ...]:
    wishes = wishes_of(subject)
    # Of a node only the first reason is known, so one of them may hide another.
    barred = {wish.bars for wish in wishes} & {item.problem.code for item in inventory.excluded}
    return tuple(wish for wish in wishes if barred or not wish.bars)


def _asker(subject: Subject, wishes: Sequence[Wish], supply: Supply) -> AskWithout:
    def ask(fields: FieldPaths) -> Offer | None:
        other = leave_out(subject, wishes, fields)
        stock = supply.inventory if other.terms == subject.terms else supply.restock(other)
        if stock is None:
            return None
        plan = make_plan(other.model, stock, other.request, other.traits).outcome
        return Offer(plan=plan, pool=pool_of(plan, stock)) if isinstance(plan, Plan) else None

    return ask


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
        front=report.front,
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

    ``ready_pods`` counts the pods that may be ready together, for the disruption budget (None:
    all). ``generations`` are the groups' (empty: the first).

    Raises:
        InputError: The plan can be shown but not run, or the image for its GPUs is not admitted any
            more.
    """
    from shardwright.rendering.render import render  # noqa: PLC0415 - see above

    # Here and not when the spec is read: only the plan says for which GPUs an image is needed.
    if plan.resource in subject.unadmitted:
        raise InputError([subject.unadmitted[plan.resource]])
    router = subject.deployment.router
    if router is not None and not router.image:
        raise InputError([ROUTER_IMAGE_MISSING])
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


ROUTER_IMAGE_MISSING: Final = Problem(
    code="RouterImageMissing",
    path="spec.routing.mode",
    what="no image of a router is known",
    limit="the administrator must name one",
    remedy="set router.image of the chart (--settings for the command line), or use mode Service",
)


def _as_deployed(subject: Subject, inventory: Inventory, report: Report) -> Report:
    if isinstance(report.outcome, NoPlan):
        return what_fits(subject, inventory, report)
    if subject.intent.replicas == 0:
        return without_groups(report)
    return in_chosen_number(subject, inventory, report)


def _with_pair(subject: Subject, considered: Considered, report: Report) -> Report:
    """Return the report with the answer to who asks for prompts and answers apart."""
    wish = subject.request.pair
    if wish is None:
        return report
    from shardwright.planning.pairing import pair_choice, without_nodes  # noqa: PLC0415 - see above

    choice = pair_choice(considered, report.outcome, wish)
    if subject.intent.replicas == 0:
        choice = without_nodes(choice)
    return replace(report, pair=choice)


def without_groups(report: Report) -> Report:
    """Return the report with a plan that holds no node."""
    if isinstance(report.outcome, NoPlan):
        return report
    plan = report.outcome
    return replace(
        report,
        outcome=replace(
            plan, groups=(), numbers=(), missing=0, layout=replace(plan.layout, replicas=0)
        ),
    )
