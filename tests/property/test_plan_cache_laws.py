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
from shardwright.reconcile.plan_cache import PlanCache
from shardwright.resolving.subject import Subject
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
