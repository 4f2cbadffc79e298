"""Laws of remembered plans: whatever is taken meanwhile, they are those that would be made anew, on
nodes that are free.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import read_node
from shardwright.hardware.pools import build_inventory
from shardwright.pipeline.assembly import plan_serving
from shardwright.pipeline.plan_cache import PlanCache
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.resolving.subject import Subject
from tests.harness.fleet import NVL72_TRAYS, make_nvl72
from tests.support.builders_nodes import a_gb200_rack, h100_nodes
from tests.support.builders_subject import a_subject
from tests.support.examples import examples

NODES = 5
FACTS = [fact for node in h100_nodes(NODES) if isinstance(fact := read_node(node), NodeFacts)]
RACKS = 12
TRAYS = 2
"""A rack of few trays: so many racks as are told apart are soon taken."""


def racks(count: int) -> list[NodeFacts]:
    """Return the trays of so many racks: ``rack-00-00``, ``rack-00-01``, ``rack-01-00``, ..."""
    found = (
        read_node(node)
        for rack in range(count)
        for node in a_gb200_rack(
            f"6a130f54-faaa-4b8f-847f-be44ab70f9{rack:02}",
            TRAYS,
            clique=rack,
            prefix=f"rack-{rack:02}",
        )
    )
    return [fact for fact in found if isinstance(fact, NodeFacts)]


IN_RACKS = racks(RACKS)
SUBJECTS: dict[str, Subject] = {
    "small": a_subject(model={"id": "meta-llama/Llama-3.1-8B-Instruct"}),
    "large": a_subject(model={"id": "meta-llama/Llama-3.1-405B-Instruct"}),
    "as many as fit": a_subject(
        model={"id": "meta-llama/Llama-3.1-8B-Instruct"},
        parallelism={"tensor": 4},
        budget={"fill": True, "gpus": 2000},
    ),
    "two": a_subject(model={"id": "meta-llama/Llama-3.1-70B-Instruct"}, replicas=2),
}


def planned(cache: PlanCache, subject: Subject, inventory: Inventory) -> Report:
    """Return the plan that is remembered, or a new one, to be remembered."""
    if (recalled := cache.recall(subject, inventory)) is not None:
        return recalled
    made = plan_serving(subject, inventory)
    cache.keep(subject, inventory, made)
    return made


WHOLE_RACKS = [fact for node in make_nvl72(6) if isinstance(fact := read_node(node), NodeFacts)]
IN_WHOLE_RACKS: dict[str, Subject] = {
    **SUBJECTS,
    "wide": a_subject(
        model={"id": "deepseek-ai/DeepSeek-V3"}, parallelism={"tensor": 8, "pipeline": 2}
    ),
    "racks": a_subject(
        model={"id": "meta-llama/Llama-3.1-8B-Instruct"}, parallelism={"tensor": 8, "pipeline": 20}
    ),
}
"""The last one takes 40 trays, which are more than a rack has, and each of its stages two of one
rack.
"""

left_in_racks = st.lists(st.sampled_from((0, 1, 2, NVL72_TRAYS)), min_size=6, max_size=6)


def asked_with(nodes: int, gpus: int) -> st.SearchStrategy[list[tuple[str, list[int]]]]:
    """Return questions, each with how many GPUs of each node are taken."""
    taken = st.lists(st.integers(0, gpus), min_size=nodes, max_size=nodes)
    return st.lists(st.tuples(st.sampled_from(sorted(SUBJECTS)), taken), min_size=1, max_size=6)


@examples(10)
@given(asked_with(NODES, gpus=8))
def test_a_remembered_plan_is_the_one_that_would_be_made_on_what_is_free(
    asked: list[tuple[str, list[int]]],
) -> None:
    _agree(FACTS, asked)


@examples(10)
@given(asked_with(RACKS * TRAYS, gpus=4))
def test_a_remembered_plan_in_racks_is_the_one_that_would_be_made_on_what_is_free(
    asked: list[tuple[str, list[int]]],
) -> None:
    _agree(IN_RACKS, asked)


@examples(10)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(IN_WHOLE_RACKS)), left_in_racks, st.integers(1, 4)),
        min_size=1,
        max_size=6,
    )
)
def test_a_remembered_plan_over_racks_is_the_one_that_would_be_made(
    asked: list[tuple[str, list[int], int]],
) -> None:
    _agree(
        WHOLE_RACKS,
        [
            (
                name,
                [
                    0 if index % NVL72_TRAYS < trays[index // NVL72_TRAYS] else gpus
                    for index in range(len(WHOLE_RACKS))
                ],
            )
            for name, trays, gpus in asked
        ],
    )


def _agree(facts: list[NodeFacts], asked: list[tuple[str, list[int]]]) -> None:
    cache = PlanCache()
    for name, gpus in asked:
        subject = IN_WHOLE_RACKS[name]
        whole = build_inventory(facts, (), terms=subject.terms)
        left = whole.without({fact.name: count for fact, count in zip(facts, gpus, strict=True)})

        found, anew = (planned(cache, subject, left).outcome, plan_serving(subject, left).outcome)

        assert type(found) is type(anew)
        if isinstance(found, NoPlan) or isinstance(anew, NoPlan):
            continue
        assert (found.layout, found.pool, found.compute_domain) == (
            anew.layout,
            anew.pool,
            anew.compute_domain,
        )
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
    assert (first.outcome.groups, again.outcome.groups) == (
        ((FACTS[1].name,),),
        ((FACTS[0].name,),),
    )


def test_which_of_many_racks_are_taken_changes_no_question_of_one_group() -> None:
    cache, subject = PlanCache(), a_subject(replicas=1)
    whole = build_inventory(racks(40), (), terms=subject.terms)
    first = planned(cache, subject, whole)

    for taken in (
        {"rack-00-00": 1},
        {"rack-00-00": 4},
        {"rack-00-00": 4, "rack-01-01": 2, "rack-02-00": 3},
    ):
        assert planned(cache, subject, whole.without(taken)).alternatives is first.alternatives


def test_a_budget_that_is_to_be_filled_is_filled_with_what_there_is_now() -> None:
    cache, subject = PlanCache(), SUBJECTS["as many as fit"]
    for count in (9, 12):
        inventory = build_inventory(racks(count), (), terms=subject.terms)
        found = planned(cache, subject, inventory).outcome
        assert isinstance(found, Plan)
        assert found.layout.replicas == count * TRAYS


def test_trays_of_one_rack_are_not_those_of_several() -> None:
    one_of_each_rack, each_second_rack = [0, 4] * RACKS, [0, 0, 4, 4] * (RACKS // 2)

    _agree(
        IN_RACKS,
        [("large", one_of_each_rack), ("large", each_second_rack), ("large", one_of_each_rack)],
    )
