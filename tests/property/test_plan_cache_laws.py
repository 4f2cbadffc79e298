"""Laws of remembered plans: whatever is taken meanwhile, they are those that would be made anew, on nodes that are free."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import read_node
from shardwright.hardware.pools import build_inventory
from shardwright.pipeline import plan_serving
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.reconcile.plan_cache import PlanCache, stock_of
from shardwright.resolving.subject import Subject
from tests.harness.fleet import make_nvl72
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import a_subject

NODES = 5
FACTS = [fact for node in h100_nodes(NODES) if isinstance(fact := read_node(node), NodeFacts)]
SUBJECTS: dict[str, Subject] = {
    "small": a_subject(model={"id": "meta-llama/Llama-3.1-8B-Instruct"}),
    "large": a_subject(model={"id": "meta-llama/Llama-3.1-405B-Instruct"}),
    "two": a_subject(model={"id": "meta-llama/Llama-3.1-70B-Instruct"}, replicas=2),
}


def planned(cache: PlanCache, subject: Subject, inventory: Inventory) -> Report:
    """Return the plan that is remembered, or a new one, to be remembered."""
    if (recalled := cache.recall(subject, inventory)) is not None:
        return recalled
    made = plan_serving(subject, inventory)
    cache.keep(subject, inventory, made)
    return made


TRAYS = 18
RACKS = 6
TRAY_FACTS = [fact for node in make_nvl72(RACKS) if isinstance(fact := read_node(node), NodeFacts)]
IN_RACKS: dict[str, Subject] = {
    **SUBJECTS,
    "wide": a_subject(model={"id": "deepseek-ai/DeepSeek-V3"}, parallelism={"tensor": 8, "pipeline": 2}),
    "racks": a_subject(model={"id": "meta-llama/Llama-3.1-8B-Instruct"}, parallelism={"tensor": 8, "pipeline": 20}),
}
"""The last one takes 40 trays, which are more than a rack has, and each of its stages two of one rack."""

left_in_racks = st.lists(st.sampled_from((0, 1, 2, 3, TRAYS)), min_size=RACKS, max_size=RACKS)
taken_gpus = st.lists(st.integers(0, 8), min_size=NODES, max_size=NODES)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(SUBJECTS)), taken_gpus), min_size=1, max_size=6))
def test_a_remembered_plan_is_the_one_that_would_be_made_on_what_is_free(asked: list[tuple[str, list[int]]]) -> None:
    cache = PlanCache()
    for name, gpus in asked:
        subject = SUBJECTS[name]
        whole = build_inventory(FACTS, (), terms=subject.terms)
        left = whole.without({fact.name: count for fact, count in zip(FACTS, gpus, strict=True)})

        found, anew = planned(cache, subject, left).outcome, plan_serving(subject, left).outcome

        assert type(found) is type(anew)
        if isinstance(found, NoPlan) or isinstance(anew, NoPlan):
            continue
        assert (found.layout, found.pool) == (anew.layout, anew.pool)
        assert _fits(found, {node.name: node.free for pool in left.pools for node in pool.nodes})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(IN_RACKS)), left_in_racks, st.integers(1, 4)), min_size=1, max_size=6))
def test_a_remembered_plan_is_the_one_that_would_be_made_on_what_is_free_in_racks(
    asked: list[tuple[str, list[int], int]],
) -> None:
    cache = PlanCache()
    for name, trays, gpus in asked:
        subject = IN_RACKS[name]
        taken = [fact.name for index, fact in enumerate(TRAY_FACTS) if index % TRAYS >= trays[index // TRAYS]]
        left = build_inventory(TRAY_FACTS, (), terms=subject.terms).without(dict.fromkeys(taken, gpus))

        found, anew = planned(cache, subject, left).outcome, plan_serving(subject, left).outcome

        assert type(found) is type(anew)
        if isinstance(found, Plan) and isinstance(anew, Plan):
            assert (found.layout, found.pool, found.compute_domain) == (anew.layout, anew.pool, anew.compute_domain)
            assert _fits(found, {node.name: node.free for pool in left.pools for node in pool.nodes})


def test_of_racks_is_counted_how_many_nodes_lie_together_and_no_more_of_them_than_a_replica_may_take() -> None:
    assert racks_left(*[TRAYS] * RACKS) == racks_left(*[TRAYS] * (RACKS - 1), TRAYS - 1)
    assert racks_left(2, 2, 2, 2, 2, 2) != racks_left(1, 1, 2, 2, 3, 3) != racks_left(1, 1, 1, 1, 4, 4)
    assert racks_left(9, 0, 0, 0, 0, 0) == racks_left(0, 0, 9, 0, 0, 0) != racks_left(0, 0, 8, 1, 0, 0)


def racks_left(*trays: int) -> tuple[object, ...]:
    """Return the stock where of each rack so many trays are left."""
    taken = [fact.name for index, fact in enumerate(TRAY_FACTS) if index % TRAYS >= trays[index // TRAYS]]
    return stock_of(build_inventory(TRAY_FACTS, ()).without(dict.fromkeys(taken, 4)), 1)


def _fits(plan: Plan, free: dict[str, int]) -> bool:
    held = Counter(node for group in plan.groups for node in group)
    return all(count * plan.gpus_per_node <= free[node] for node, count in held.items())


def test_a_question_that_was_asked_before_is_not_planned_again() -> None:
    cache, subject = PlanCache(), SUBJECTS["small"]
    whole = build_inventory(FACTS, (), terms=subject.terms)
    first = planned(cache, subject, whole.without({FACTS[0].name: 8}))
    again = planned(cache, subject, whole.without({FACTS[1].name: 8}))

    assert again.alternatives is first.alternatives
    assert isinstance(first.outcome, Plan)
    assert isinstance(again.outcome, Plan)
    assert (first.outcome.groups, again.outcome.groups) == (((FACTS[1].name,),), ((FACTS[0].name,),))
