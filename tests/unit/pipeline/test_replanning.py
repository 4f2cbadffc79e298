"""What becomes of a plan when the number of replicas changes, groups lose their nodes or need a
second place.
"""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.record import PlanRecord
from shardwright.hardware.nodes import GpuUsage
from shardwright.layouts.layout import Layout
from shardwright.pipeline.assembly import bundle_for, plan_serving, record_of
from shardwright.pipeline.changed_load import STAYS
from shardwright.pipeline.replanning import (
    KEPT,
    Held,
    Replanned,
    place_beside,
    plan_anew,
    rehouse,
    relocate,
    rescale,
    rescaled,
    restore,
)
from shardwright.planning.report import NoPlan, Plan
from shardwright.rendering.bundle import of_kind
from shardwright.resolving.stock import OwnGpus, reservations_of, take_stock
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import a_gb200_rack, a_node, an_l40s_node, h100_nodes
from tests.support.builders_subject import (
    LARGE,
    OWN,
    a_subject,
    ground,
    h100_facts,
    plan_of,
    pods_of,
    stock,
)


def test_growing_adds_groups_and_moves_none() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = replace(
        plan_of(plan_serving(before, stock(before, h100_nodes(4)))),
        groups=(("h100-02", "h100-01"),),
    )

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(4))))

    assert plan.groups == (("h100-02", "h100-01"), ("h100-00", "h100-03"))
    assert plan.layout == Layout(tensor=8, pipeline=2, replicas=2)


def test_growing_fills_up_nodes_that_a_group_holds_in_part() -> None:
    pins = {"parallelism": {"tensor": 2, "pipeline": 1}}
    before, after = a_subject(**pins), a_subject(**pins, replicas=5)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(2))))

    assert plan.groups[0] == kept.groups[0]
    assert sorted(plan.groups) == [("h100-00",)] * 4 + [("h100-01",)]


def test_growing_keeps_the_cut_although_another_would_now_be_better() -> None:
    before, after = a_subject(), a_subject(replicas=8)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(2))))

    assert replace(plan.layout, replicas=1) == kept.layout


def test_shrinking_drops_the_last_groups() -> None:
    before, after = a_subject(**LARGE, replicas=3), a_subject(**LARGE, replicas=1)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(6))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(6))))

    assert plan.groups == kept.groups[:1]
    assert plan.layout.replicas == 1


def three_groups() -> PlanRecord:
    """Return the record of three groups of a node each, of which the last one is to be of a third
    generation.
    """
    subject = a_subject(**ONE_EACH, replicas=3)
    record = a_record_of(subject, h100_nodes(3))
    groups = (("h100-00",), ("h100-01",), ("h100-02",))
    return replace(record, plan=replace(record.plan, groups=groups), generations=(0, 1, 2))


def test_shrinking_drops_the_worst_groups_and_changes_nothing_of_the_others() -> None:
    fewer, record = a_subject(**ONE_EACH, replicas=2), three_groups()

    found = rescaled(fewer, record, stock(fewer, h100_nodes(3)), (0, 2, 1)).record

    assert found is not None
    assert (found.plan.groups, found.plan.group_numbers) == ((("h100-01",), ("h100-02",)), (1, 2))
    assert (found.generations, found.plan.layout.replicas) == ((1, 2), 2)


def test_growing_again_fills_the_hole_and_changes_nothing_of_the_others() -> None:
    fewer, more, record = (
        a_subject(**ONE_EACH, replicas=2),
        a_subject(**ONE_EACH, replicas=4),
        three_groups(),
    )
    left = rescaled(fewer, record, stock(fewer, h100_nodes(4)), (1, 2, 0)).record
    assert left is not None
    assert left.plan.group_numbers == (0, 2)

    found = rescaled(more, left, stock(more, h100_nodes(4))).record

    assert found is not None
    assert found.plan.group_numbers == (0, 1, 2, 3)
    assert found.plan.numbers == ()
    assert (found.plan.groups[0], found.plan.groups[2]) == (("h100-00",), ("h100-02",))
    assert sorted(found.plan.groups) == [("h100-00",), ("h100-01",), ("h100-02",), ("h100-03",)]
    assert found.generations == (0, 0, 2, 0)


def test_a_new_plan_with_fewer_groups_drops_the_worst() -> None:
    record, edited = three_groups(), a_subject(**ONE_EACH, **EDITED, replicas=1)

    found = plan_anew(edited, record, ground(edited, h100_nodes(3), worst=(2, 0, 1))).record

    assert found is not None
    assert (found.plan.groups, found.plan.numbers, found.generations) == (
        (("h100-01",),),
        (1,),
        (1,),
    )


def test_growing_says_that_the_cut_was_kept() -> None:
    before, after = a_subject(), a_subject(replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    assert plan_of(rescale(after, kept, stock(after, h100_nodes(2)))).reasons[0] == KEPT


def drafting(replicas: int) -> Subject:
    drafter = "meta-llama/Llama-3.2-1B"
    head = {"id": drafter, "uri": f"hf://{drafter}@{'f' * 40}"}
    return a_subject(
        model={"id": "meta-llama/Llama-3.1-8B-Instruct"},
        workload={"inputTokens": 1000, "outputTokens": 500, "concurrency": 64},
        engine={"speculation": {"method": "DraftModel", "acceptancePercent": 70, "head": head}},
        parallelism={"tensor": 1},
        replicas=replicas,
    )


def test_growing_predicts_with_the_drafts_that_its_pods_were_started_with() -> None:
    one, six = drafting(1), drafting(6)
    kept = plan_of(plan_serving(one, stock(one, h100_nodes(1))))
    anew = plan_of(plan_serving(six, stock(six, h100_nodes(1))))

    plan = plan_of(rescale(six, kept, stock(six, h100_nodes(1))))

    assert (kept.draft_tokens, anew.draft_tokens, plan.draft_tokens) == (1, 2, 1)
    assert [text[:39] for text in plan.warnings if text.startswith("speculation")] == [
        "speculation: 1 drafted token a step, of"
    ]
    assert plan.performance != anew.performance


def test_growing_beyond_the_pool_does_not_wait_for_nodes_of_another_kind() -> None:
    before, after = a_subject(), a_subject(replicas=99)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))
    away = an_l40s_node("l40s-away")
    away["spec"] = {"unschedulable": True}

    report = rescale(after, kept, stock(after, [*h100_nodes(2), away]))

    assert (len(plan_of(report).groups), plan_of(report).missing) == (16, 83)
    assert report.lacks is not None
    assert (report.lacks.problem.code, report.lacks.heals_by_itself) == ("PoolTooSmall", False)


def test_growing_stays_in_the_pool_of_the_plan() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    report = rescale(
        after, kept, stock(after, [*h100_nodes(2), *(an_l40s_node(f"l40s-{i}") for i in range(9))])
    )

    assert (plan_of(report).groups, plan_of(report).missing) == (kept.groups, 1)


def test_growing_finds_the_pool_although_a_label_has_renamed_it() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(4))))
    relabelled = [a_node(f"h100-0{index}", network_gbps=200) for index in range(4)]

    plan = plan_of(rescale(after, kept, stock(after, relabelled)))

    assert (plan.pool, len(plan.groups), plan.groups[0]) == (kept.pool, 2, kept.groups[0])


def test_a_limit_on_latency_that_all_replicas_meet_together_lets_the_last_one_in() -> None:
    spec = {
        "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
        "parallelism": {"tensor": 4, "pipeline": 1},
        "objective": {"tpotMilliseconds": 35},
    }
    before, after = a_subject(**spec, replicas=2), a_subject(**spec, replicas=3)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    assert len(plan_of(rescale(after, kept, stock(after, h100_nodes(2)))).groups) == 3


def test_another_number_of_replicas_starts_no_running_group_anew() -> None:
    spec = {"workload": {"concurrency": 10}, "parallelism": {"tensor": 1, "pipeline": 1}}
    before, after = a_subject(**spec), a_subject(**spec, replicas=2)
    nodes = [a_node(f"l4-{index}", product="NVIDIA-L4", gpus=1) for index in range(2)]
    kept = plan_of(plan_serving(before, stock(before, nodes)))

    grown = plan_of(rescale(after, kept, stock(after, nodes)))

    first, same = (
        of_kind(bundle_for(after, plan).objects, "StatefulSet")[0]["spec"] for plan in (kept, grown)
    )
    assert first == same
    assert grown.performance.output_tokens_per_second > kept.performance.output_tokens_per_second


def test_growing_where_pods_would_not_be_as_those_that_there_are_adds_nothing_and_says_why() -> (
    None
):
    """The group has the trays of one rack and a ComputeDomain; those of two racks can have none."""
    spec = {**LARGE, "parallelism": {"tensor": 4, "pipeline": 3}}
    before, after = a_subject(**spec), a_subject(**spec, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, a_gb200_rack(trays=3))))
    assert kept.compute_domain

    apart = [*a_gb200_rack(trays=5), *a_gb200_rack(trays=1, clique=2, prefix="other")]
    report = rescale(after, kept, stock(after, apart))

    assert (plan_of(report).groups, plan_of(report).missing) == (kept.groups, 1)
    assert report.lacks is not None
    assert report.lacks.heals_by_itself
    assert report.lacks.problem.sentence() == (
        "TP4·PP3 on gb200-nvl-186gb-4x-400g must run in the same pods as the groups "
        "that there are, "
        "what is free has no nodes that share an NVLink domain, unlike the plan; free or add "
        "nodes as those of the plan; "
        "spec.replan: Always plans all groups anew"
    )


@pytest.mark.parametrize(("offered", "more"), [("8", True), ("16", True), ("4", False)])
def test_growing_asks_new_nodes_for_the_rdma_devices_that_the_pods_request(
    offered: str, *, more: bool
) -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    nodes = [
        a_node(f"h100-{index}", allocatable={"rdma/ib": "8" if index < 2 else offered})
        for index in range(4)
    ]
    kept = plan_of(plan_serving(before, stock(before, nodes[:2])))

    grown = plan_of(rescale(after, kept, stock(after, nodes)))

    assert kept.rdma == (("rdma/ib", 8),)
    assert len(grown.groups) == 1 + more


def lose(nodes: int, *lost: str, of: int = 2) -> tuple[Plan, Plan, NoPlan | None]:
    """Return the plan of groups on two nodes each, and what becomes of it without some of its
    nodes, but ``nodes`` in all.
    """
    subject = a_subject(**LARGE, replicas=of)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2 * of))))
    plan = replace(
        plan,
        groups=tuple((f"h100-{first:02}", f"h100-{first + 1:02}") for first in range(0, 2 * of, 2)),
    )
    left = [node for node in h100_nodes(nodes) if node["metadata"]["name"] not in lost]
    leaving = frozenset(
        index for index, group in enumerate(plan.groups) if set(group).intersection(lost)
    )
    return plan, *rehouse(subject, plan, stock(subject, left), leaving)


def test_a_group_that_lost_a_node_moves_as_a_whole_and_the_others_stay() -> None:
    plan, moved, short = lose(6, "h100-01")

    assert (moved, short) == (
        replace(plan, groups=(("h100-00", "h100-04"), ("h100-02", "h100-03"))),
        None,
    )


def test_a_group_that_lost_a_node_and_finds_no_other_stays_where_it_is_and_says_why() -> None:
    plan, moved, short = lose(4, "h100-03")

    assert moved == plan
    assert short is not None
    assert short.problem.code == "InsufficientCapacity"


def test_of_the_groups_that_lost_nodes_as_many_move_as_have_room_and_each_keeps_its_index() -> None:
    plan, moved, short = lose(
        10, "h100-01", "h100-05", "h100-07", of=4
    )  # h100-00, -04, -06, -08 and -09 are free

    assert moved.groups == (
        ("h100-00", "h100-04"),
        ("h100-02", "h100-03"),
        ("h100-06", "h100-08"),
        plan.groups[3],
    )
    assert short is not None
    assert short.problem.sentence().startswith(
        "TP8·PP2 needs 2 nodes of h100-sxm-80gb-8x-400g with 8 free GPUs each"
    )


def a_record_of(subject: Subject, nodes: list[dict[str, Any]]) -> PlanRecord:
    record = record_of(subject, plan_serving(subject, stock(subject, nodes)))
    assert record is not None
    return replace(record, generations=(1,))


def test_a_model_that_lost_all_its_groups_is_planned_anew_on_other_hardware() -> None:
    subject = a_subject()
    record = a_record_of(subject, h100_nodes(1))

    found = relocate(subject, record, stock(subject, [an_l40s_node("l40s-0")]), frozenset({0}))

    assert found.record is not None
    assert (found.record.plan.pool != record.plan.pool, found.record.plan.groups) == (
        True,
        (("l40s-0",),),
    )


def test_a_lost_group_moves_although_there_is_no_room_for_all_replicas_that_are_wanted() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=3)
    record, left = a_record_of(before, h100_nodes(2)), h100_nodes(4)[1:]

    found = relocate(after, record, stock(after, left), frozenset({0}))

    assert found.record is not None
    assert (found.record.plan.groups, found.record.plan.missing) == ((("h100-01", "h100-02"),), 2)
    assert (found.short, found.homeless, found.placed) == (None, frozenset(), 1)
    assert found.lacks is not None


def test_a_lost_group_moves_and_more_are_added_where_there_is_room_for_both() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    record, left = a_record_of(before, h100_nodes(2)), h100_nodes(5)[1:]

    found = relocate(after, record, stock(after, left), frozenset({0}))

    assert found.record is not None
    assert found.short is None
    assert found.record.plan.groups == (("h100-01", "h100-02"), ("h100-03", "h100-04"))
    assert (found.record.input_hash, found.record.generations) == (after.input_hash, (1, 0))


def test_a_new_plan_leaves_the_generation_that_a_group_is_to_have() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, workload={"concurrency": 7})
    record = a_record_of(before, h100_nodes(2))

    found = plan_anew(after, record, ground(after, h100_nodes(2)))

    assert found.record is not None
    assert (found.record.input_hash, found.record.generations) == (after.input_hash, (1,))


EDITED = {"workload": {"concurrency": 7}}
PAIR, ONE_EACH = (
    {**LARGE, "parallelism": {"tensor": 8, "pipeline": 2}},
    {"parallelism": {"tensor": 8, "pipeline": 1}},
)


def held_by(spec: dict[str, Any], *groups: tuple[str, ...]) -> PlanRecord:
    """Return the record of a plan whose groups have these nodes."""
    subject = a_subject(**spec, replicas=len(groups))
    record = a_record_of(subject, h100_nodes(6))
    return replace(record, plan=replace(record.plan, groups=groups))


def groups_anew(
    spec: dict[str, Any], record: PlanRecord | None, *names: str, **options: Any
) -> tuple[tuple[str, ...], ...]:
    """Return where the groups of a new plan are, on nodes of these names."""
    subject = a_subject(**spec)
    found = plan_anew(subject, record, ground(subject, [a_node(name) for name in names], **options))
    assert found.record is not None
    assert found.short is None
    assert found.report.outcome == found.record.plan
    return found.record.plan.groups


SIX = tuple(f"h100-{index:02}" for index in range(6))


@pytest.mark.parametrize(
    ("spec", "groups"),
    [
        (ONE_EACH, (("h100-04",), ("h100-01",))),
        (PAIR, (("h100-05", "h100-00"), ("h100-02", "h100-01"))),
    ],
    ids=["a node", "two nodes"],
)
def test_a_new_plan_leaves_groups_on_the_nodes_that_they_have(
    spec: dict[str, Any], groups: tuple[tuple[str, ...], ...]
) -> None:
    assert groups_anew({**spec, **EDITED, "replicas": 2}, held_by(spec, *groups), *SIX) == groups


def test_a_new_plan_moves_the_groups_alone_that_have_lost_a_node() -> None:
    record = held_by(ONE_EACH, ("h100-00",), ("h100-01",), ("h100-02",))
    assert groups_anew({**ONE_EACH, **EDITED, "replicas": 3}, record, *SIX[1:4]) == (
        ("h100-03",),
        ("h100-01",),
        ("h100-02",),
    )


def test_a_new_plan_with_more_groups_adds_them_and_one_with_fewer_drops_the_last() -> None:
    record = held_by(ONE_EACH, ("h100-04",), ("h100-01",))
    assert groups_anew({**ONE_EACH, **EDITED, "replicas": 3}, record, *SIX) == (
        ("h100-04",),
        ("h100-01",),
        ("h100-00",),
    )
    assert groups_anew({**ONE_EACH, **EDITED, "replicas": 1}, record, *SIX) == (("h100-04",),)


def test_a_new_plan_without_a_record_leaves_groups_where_they_stand() -> None:
    held = (Held(number=0, nodes=("h100-04",)), Held(number=2, nodes=("h100-01",)))
    spec = {**ONE_EACH, "replicas": 3}
    assert groups_anew(spec, None, *SIX, held=held) == (("h100-04",), ("h100-00",), ("h100-01",))


def test_groups_of_another_shape_get_the_places_that_share_most_nodes_with_theirs() -> None:
    record = held_by(ONE_EACH, ("h100-02",), ("h100-00",))
    assert groups_anew({**PAIR, "replicas": 2}, record, *SIX[:4]) == (
        ("h100-02", "h100-03"),
        ("h100-00", "h100-01"),
    )


def test_groups_that_share_nodes_stay_and_further_ones_fill_these_nodes_up() -> None:
    halves = {"parallelism": {"tensor": 4, "pipeline": 1}}
    record = held_by(halves, ("h100-01",), ("h100-00",))
    found = groups_anew({**halves, **EDITED, "replicas": 4}, record, *SIX[:2])
    assert found[:2] == (("h100-01",), ("h100-00",))
    assert sorted(found[2:]) == [("h100-00",), ("h100-01",)]


def beside(subject: Subject, plan: Plan, nodes: int, group: int = 0) -> tuple[str, ...] | None:
    """Return a second place for a group whose plan is kept and whose pods are all bound."""
    kept = reservations_of(OWN, plan)
    return place_beside(
        subject,
        plan,
        take_stock(subject, h100_facts(nodes), pods_of(plan), kept, OwnGpus(beside=group)),
    )


def test_a_second_place_for_a_group_is_on_gpus_that_no_pod_and_no_plan_holds() -> None:
    subject = a_subject(**LARGE)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert beside(subject, plan, nodes=4) == ("h100-02", "h100-03")
    assert beside(subject, plan, nodes=3) is None


def test_a_group_that_shares_a_node_may_have_its_second_place_there() -> None:
    subject = a_subject(parallelism={"tensor": 2, "pipeline": 1}, replicas=3)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

    assert beside(subject, plan, nodes=1, group=1) == ("h100-00",)


def test_nodes_of_a_plan_that_are_not_bound_yet_are_a_second_place_of_that_group_only() -> None:
    subject = a_subject(**LARGE, replicas=2)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(4))))
    for group in (0, 1):
        inventory = take_stock(
            subject, h100_facts(4), (), reservations_of(OWN, plan), OwnGpus(beside=group)
        )
        assert place_beside(subject, plan, inventory) == plan.groups[group]


SMALL = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    "model",
    [
        {"weights": {"uri": "pvc://weights"}},
        {"weights": {"cache": {"claimName": "downloads"}}},
        {"adapters": [{"name": "support", "uri": "pvc://adapters"}]},
    ],
    ids=["weights", "cache", "adapters"],
)
def test_a_claim_that_one_node_has_mounted_is_not_asked_of_another(model: dict[str, Any]) -> None:
    one_gpu = {"model": {"id": SMALL} | model, "parallelism": {"tensor": 8, "pipeline": 1}}
    alone, on_two = a_subject(**one_gpu), a_subject(**one_gpu, replicas=2)
    plans = [
        plan_of(plan_serving(subject, stock(subject, h100_nodes(2)))) for subject in (alone, on_two)
    ]

    assert beside(alone, plans[0], nodes=3) is None
    assert beside(on_two, plans[1], nodes=3) == ("h100-02",)


def test_an_image_is_no_claim_and_may_be_asked_of_another_node() -> None:
    subject = a_subject(
        model={"id": SMALL, "weights": {"uri": "oci://registry.internal/llama"}},
        parallelism={"tensor": 8, "pipeline": 1},
    )
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert beside(subject, plan, nodes=3) == ("h100-01",)


def test_a_second_pod_on_the_node_that_has_mounted_the_claim_may_start_there() -> None:
    subject = a_subject(
        model={"id": SMALL, "weights": {"uri": "pvc://weights"}},
        parallelism={"tensor": 1, "pipeline": 1},
    )
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

    assert beside(subject, plan, nodes=1) == ("h100-00",)


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [({"gpus": 31}, False), ({"gpus": 32}, True), ({"nodes": 3}, False), ({"nodes": 4}, True)],
)
def test_a_second_place_stays_within_the_budget(budget: dict[str, int], *, allowed: bool) -> None:
    subject = a_subject(**LARGE, budget=budget)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert (beside(subject, plan, nodes=4) is not None) is allowed


def test_a_number_that_grows_stays_within_the_budget() -> None:
    one, two = (a_subject(**LARGE, replicas=number, budget={"gpus": 31}) for number in (1, 2))
    plan = plan_of(plan_serving(one, stock(one, h100_nodes(2))))

    grown = rescale(two, plan, stock(two, h100_nodes(4)))

    assert (len(plan_of(grown).groups), plan_of(grown).missing) == (1, 1)
    assert grown.lacks is not None
    assert grown.lacks.problem.code == "BudgetExceeded"


def test_growing_from_no_replicas_plans_anew() -> None:
    none, one = a_subject(**LARGE, replicas=0), a_subject(**LARGE)
    nodes = h100_nodes(2)
    kept = plan_of(plan_serving(none, stock(none, nodes)))

    assert rescale(one, kept, stock(one, nodes)) == plan_serving(one, stock(one, nodes))


TRIPLE = {**LARGE, "parallelism": {"tensor": 8, "pipeline": 3}}


def anew_above(
    partition: int, record: PlanRecord, nodes: int, **options: Any
) -> tuple[tuple[str, ...], ...]:
    """Return where two groups of three nodes each are planned of which those below the partition
    keep what they have.
    """
    spec = {**TRIPLE, "replicas": len(record.plan.groups), "rollout": {"partition": partition}}
    return groups_anew(spec, record, *(f"h100-{index:02}" for index in range(nodes)), **options)


FIRST, SECOND = SIX[:3], SIX[3:]


def test_a_group_above_the_partition_swaps_places_with_one_below_that_stands_on_its_nodes() -> None:
    record = held_by(PAIR, ("h100-00", "h100-06"), ("h100-01", "h100-02"))
    assert [anew_above(partition, record, 9) for partition in (0, 1)] == [
        (SECOND, FIRST),
        (FIRST, SECOND),
    ]


def test_a_group_above_the_partition_takes_free_nodes_where_one_below_stands_on_all_planned() -> (
    None
):
    record = held_by(PAIR, ("h100-02", "h100-03"), ("h100-00", "h100-01"))
    assert [anew_above(partition, record, 9) for partition in (0, 1)] == [
        (SECOND, FIRST),
        (SECOND, (*FIRST[:2], "h100-06")),
    ]


def test_without_room_beside_the_groups_below_the_partition_the_plan_is_as_it_would_be() -> None:
    record = held_by(PAIR, ("h100-02", "h100-03"), ("h100-00", "h100-01"))
    assert [anew_above(partition, record, 6) for partition in (0, 1)] == [(SECOND, FIRST)] * 2


def test_where_a_group_below_the_partition_stands_counts_more_than_where_it_was_to_go() -> None:
    record = held_by(PAIR, SECOND[:2], FIRST[:2])
    elsewhere = (Held(number=0, nodes=("h100-02", "h100-06")),)
    assert [anew_above(1, record, 9, held=held) for held in ((), elsewhere)] == [
        (SECOND, FIRST),
        (FIRST, SECOND),
    ]


def test_an_earlier_plan_of_a_model_without_groups_holds_no_node() -> None:
    none, record = a_subject(**ONE_EACH, replicas=0), three_groups()
    plan = replace(record.plan, groups=record.plan.groups[1:], numbers=(1, 2))

    found = restore(none, record, plan, ground(none, h100_nodes(3))).record

    assert found is not None
    assert (found.plan.groups, found.plan.group_numbers, found.plan.layout) == (
        (),
        (),
        replace(plan.layout, replicas=0),
    )


def test_an_earlier_plan_keeps_clear_of_what_groups_below_the_partition_have() -> None:
    now = held_by(PAIR, FIRST[:2], SECOND[:2])
    former = held_by(ONE_EACH, ("h100-00",), ("h100-01",))
    places = []
    for partition in (0, 1):
        subject = a_subject(**ONE_EACH, replicas=2, rollout={"partition": partition})
        held = tuple(
            Held(number=number, nodes=nodes) for number, nodes in enumerate(now.plan.groups)
        )
        found = restore(subject, now, former.plan, ground(subject, h100_nodes(6), held)).record
        assert found is not None
        places.append(found.plan.groups)
    assert places == [(("h100-00",), ("h100-01",)), (("h100-00",), ("h100-02",))]


ZONES = [
    node
    for zone in "ab"
    for node in h100_nodes(2, prefix=zone, labels={"topology.kubernetes.io/zone": zone})
]
SPREAD = {
    "parallelism": {"tensor": 8, "pipeline": 1},
    "pod": {"topologySpread": {"topologyKey": "topology.kubernetes.io/zone"}},
}


def test_groups_are_spread_and_those_that_come_go_where_the_fewest_are() -> None:
    before, after = a_subject(**SPREAD), a_subject(**SPREAD, replicas=3)
    kept = replace(plan_of(plan_serving(before, stock(before, ZONES))), groups=(("b-00",),))

    planned = plan_of(plan_serving(after, stock(after, ZONES)))
    grown = plan_of(rescale(after, kept, stock(after, ZONES)))

    assert planned.groups == (("a-00",), ("b-00",), ("a-01",))
    assert grown.groups == (("b-00",), ("a-00",), ("a-01",))
    assert not any("spread" in warning for warning in (*planned.warnings, *grown.warnings))


def test_a_group_that_leaves_its_node_goes_where_the_others_are_not() -> None:
    subject = a_subject(**SPREAD, replicas=2)
    plan = replace(
        plan_of(plan_serving(subject, stock(subject, ZONES))), groups=(("a-00",), ("b-00",))
    )

    moved, short = rehouse(
        subject, plan, stock(subject, ZONES).without_nodes({"b-00"}), frozenset({1})
    )

    assert (moved.groups, short) == ((("a-00",), ("b-01",)), None)


def test_a_plan_says_where_groups_are_that_have_no_room_to_be_spread() -> None:
    subject = a_subject(**SPREAD, replicas=3)
    nodes = [
        *ZONES[:1],
        *ZONES[2:],
        *h100_nodes(2, prefix="b-more", labels={"topology.kubernetes.io/zone": "b"}),
    ]
    one_zone = [
        *ZONES[2:],
        *h100_nodes(1, prefix="b-more", labels={"topology.kubernetes.io/zone": "b"}),
    ]

    even, uneven = (
        plan_of(plan_serving(subject, stock(subject, found))) for found in (nodes, one_zone)
    )

    assert not any("spread" in warning for warning in even.warnings)
    assert [warning for warning in uneven.warnings if "spread" in warning] == [
        (
            "replicas are not spread evenly over topology.kubernetes.io/zone: 3 in b, as far as "
            "there is room"
        )
    ]


def partly(nodes: int, *, replicas: int = 4, **spec: Any) -> Replanned:
    """Return the first plan of groups of a node each, where so many nodes are free."""
    subject = a_subject(**ONE_EACH, replicas=replicas, **spec)
    return plan_anew(subject, None, ground(subject, h100_nodes(nodes)))


def test_a_new_model_with_room_for_three_of_its_four_groups_is_planned_with_three() -> None:
    found = partly(3)

    assert found.record is not None
    plan = found.record.plan
    assert plan.groups == (("h100-00",), ("h100-01",), ("h100-02",))
    assert (plan.layout.replicas, plan.missing, plan.wanted) == (3, 1, 4)
    assert (found.short, found.placed) == (None, 3)
    assert found.lacks is not None
    assert found.lacks.problem.sentence().startswith(
        "TP8 needs 1 node of h100-sxm-80gb-8x-400g with 8 free GPUs, 0 free of 3, 1 short"
    )


@pytest.mark.parametrize(("least", "placed"), [(1, 3), (3, 3), (4, 0), (1000, 0)])
def test_fewer_groups_than_min_groups_are_not_planned(least: int, placed: int) -> None:
    found = partly(3, rollout={"minGroups": least})

    assert (found.placed, found.short is None) == (placed, placed > 0)


def test_a_growth_adds_none_where_too_few_would_be_of_no_use() -> None:
    rollout = {"minGroups": 4}
    more = a_subject(**ONE_EACH, replicas=4, rollout=rollout)

    found = rescaled(more, three_groups_at(2), stock(more, h100_nodes(3)))

    assert (found.placed, found.lacks is None) == (2, False)


def three_groups_at(groups: int) -> PlanRecord:
    """Return the record of so many groups of a node each."""
    return a_record_of(a_subject(**ONE_EACH, replicas=groups), h100_nodes(groups))


def test_a_growth_that_partly_fits_adds_what_fits_and_says_how_many_are_missing() -> None:
    more, record = a_subject(**ONE_EACH, replicas=5), three_groups_at(3)

    found = rescaled(more, record, stock(more, h100_nodes(4)))

    assert found.record is not None
    assert found.record.plan.groups[:3] == record.plan.groups
    assert (found.placed, found.record.plan.missing) == (4, 1)
    assert (found.record.input_hash, found.short) == (more.input_hash, None)


def test_a_plan_that_lacks_groups_stays_to_the_byte_while_there_is_no_room_and_grows_with_it() -> (
    None
):
    record = partly(3).record
    assert record is not None
    subject = a_subject(**ONE_EACH, replicas=4)

    same = rescaled(subject, record, stock(subject, [*h100_nodes(3), an_l40s_node("l40s")]))
    grown = rescaled(subject, record, stock(subject, h100_nodes(4)))

    assert (same.record, same.lacks is None) == (record, False)
    assert grown.record is not None
    assert grown.record.plan.groups == (*record.plan.groups, ("h100-03",))
    assert (grown.record.plan.missing, grown.lacks) == (0, None)


def test_limits_are_held_to_the_load_of_all_groups_and_predictions_are_of_those_placed() -> None:
    spec = {
        "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
        "parallelism": {"tensor": 4, "pipeline": 1},
        "workload": {"concurrency": 64},
        "objective": {"tpotMilliseconds": 25},
        "replicas": 4,
    }
    subject = a_subject(**spec)
    unmet = a_subject(**spec | {"objective": {"tpotMilliseconds": 20}})
    alone = a_subject(**spec | {"replicas": 2, "objective": {}})

    part = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
    two = plan_of(plan_serving(alone, stock(alone, h100_nodes(1))))

    assert (part.layout, part.missing) == (two.layout, 2)
    assert part.performance == two.performance
    assert part.performance.tpot_seconds > 0.025
    assert isinstance(plan_serving(unmet, stock(unmet, h100_nodes(1))).outcome, NoPlan)


def test_a_group_that_lost_its_node_is_homeless_and_the_others_keep_their_places() -> None:
    subject, record = a_subject(**ONE_EACH, replicas=3), three_groups()

    found = relocate(subject, record, stock(subject, h100_nodes(2)), frozenset({2}))

    assert (found.record, found.homeless, found.placed) == (record, frozenset({2}), 2)
    assert (found.short, found.lacks is None) == (None, False)


def test_no_new_cut_ends_groups_that_serve_for_want_of_room() -> None:
    """Three groups of a node serve; of two nodes each only one has room."""
    record, edited = three_groups(), a_subject(**LARGE, replicas=3)
    there = ground(edited, h100_nodes(3))

    kept = plan_anew(edited, record, replace(there, serving=3))
    made = plan_anew(edited, record, there)

    assert (kept.record, kept.short is None) == (record, False)
    assert (made.placed, made.short) == (1, None)


def test_a_budget_to_fill_that_lost_a_group_wants_it_back() -> None:
    subject = a_subject(**ONE_EACH, budget={"gpus": 24, "fill": True})
    record = a_record_of(subject, h100_nodes(3))
    assert len(record.plan.groups) == 3

    found = relocate(subject, record, stock(subject, h100_nodes(2)), frozenset({2}))

    assert (found.placed, found.homeless) == (2, frozenset({2}))
    assert subject.intent.wants(record.plan) == 3


def test_an_earlier_plan_comes_back_with_as_many_groups_as_have_a_place() -> None:
    subject = a_subject(**ONE_EACH, replicas=3)
    plan = a_record_of(subject, h100_nodes(3)).plan

    found = restore(subject, None, plan, ground(subject, h100_nodes(2)))

    assert found.record is not None
    assert (found.placed, found.record.plan.missing, found.short) == (2, 1, None)


SIXTY = {"workload": {"requestsPerSecond": 60}}
"""A rate that an 8B carries with twelve single GPUs."""


def planned(nodes: int, **spec: Any) -> Replanned:
    """Return the first plan for that rate, of as many groups as it needs, on so many nodes."""
    subject = a_subject(**SIXTY | spec)
    return plan_anew(subject, None, ground(subject, h100_nodes(nodes)))


def test_a_planned_number_for_which_room_is_missing_is_planned_in_part_and_says_why() -> None:
    found = planned(1)

    assert found.record is not None
    plan = found.record.plan
    assert (plan.layout, plan.missing, plan.wanted) == (Layout(replicas=8), 4, 12)
    assert (found.short, found.placed) == (None, 8)
    assert found.lacks is not None
    assert found.lacks.problem.sentence().startswith(
        "TP1 needs room for 4 replicas with 1 free GPU each on h100-sxm-80gb-8x-400g, 0 fit"
    )


@pytest.mark.parametrize(
    ("spec", "placed", "missing"),
    [
        ({"budget": {"gpus": 8}}, 8, 0),
        ({"budget": {"gpus": 10}}, 8, 2),
        ({"budget": {"nodes": 1}}, 8, 0),
        ({"budget": {"nodes": 2}}, 8, 4),
        ({"workload": {"concurrency": 4}}, 1, 0),
        ({"replicas": 0}, 0, 0),
        ({"rollout": {"minGroups": 8}}, 8, 4),
        ({"rollout": {"minGroups": 9}}, 0, 0),
        ({"rollout": {"minGroups": 1000}}, 0, 0),
    ],
)
def test_a_planned_number_lacks_what_the_load_needs_within_the_budget_once_enough_have_a_place(
    spec: dict[str, Any], placed: int, missing: int
) -> None:
    found = planned(1, **spec)
    plan = found.record.plan if found.record else None

    assert (found.placed, plan.missing if plan else 0) == (placed, missing)
    assert (found.lacks is None) == (missing == 0)


def test_a_planned_number_grows_with_the_room_and_moves_no_group() -> None:
    subject, record = a_subject(**SIXTY), planned(1).record
    assert record is not None

    same = rescaled(subject, record, stock(subject, [*h100_nodes(1), an_l40s_node("l40s")]))
    grown = rescaled(subject, record, stock(subject, h100_nodes(2)))

    assert (same.record, same.lacks is None) == (record, False)
    assert grown.record is not None
    assert grown.record.plan.groups[:8] == record.plan.groups
    assert (grown.placed, grown.record.plan.missing, grown.lacks) == (12, 0, None)


def test_a_planned_number_grows_on_no_more_nodes_than_its_budget_has() -> None:
    found = planned(1, budget={"nodes": 2})
    assert found.record is not None
    subject = a_subject(**SIXTY, budget={"nodes": 2})
    others = [
        GpuUsage(
            node=node, resource="nvidia.com/gpu", gpus=6, owner=("other", node), group="other-0"
        )
        for node in ("h100-01", "h100-02")
    ]

    grown = rescaled(subject, found.record, take_stock(subject, h100_facts(3), others))

    assert grown.record is not None
    assert len({node for group in grown.record.plan.groups for node in group}) == 2
    assert (grown.placed, grown.record.plan.missing, grown.lacks is None) == (10, 2, False)


def test_an_earlier_plan_of_a_stopped_model_lacks_no_group() -> None:
    record, stopped = planned(1).record, a_subject(**SIXTY, replicas=0)
    assert record is not None

    found = restore(stopped, record, record.plan, ground(stopped, h100_nodes(1)))

    assert found.record is not None
    assert (found.record.plan.groups, found.record.plan.missing) == ((), 0)


ONE_GPU = {"parallelism": {"tensor": 1, "pipeline": 1}}


def test_a_model_grows_onto_nodes_of_another_size() -> None:
    before, after = a_subject(**ONE_GPU, replicas=8), a_subject(**ONE_GPU, replicas=11)
    kept = plan_of(plan_serving(before, stock(before, [a_node("a")])))
    nodes = [a_node("a"), a_node("b", gpus=4)]

    plan = plan_of(rescale(after, kept, stock(after, nodes)))

    assert kept.pool == "h100-sxm-80gb-8x-400g"
    assert plan.groups == (*kept.groups, ("b",), ("b",), ("b",))


def test_a_plan_on_nodes_of_two_sizes_goes_on_when_one_size_is_gone() -> None:
    before, after = a_subject(**ONE_GPU, replicas=10), a_subject(**ONE_GPU, replicas=7)
    nodes = [a_node("a"), a_node("b", gpus=4)]
    made = plan_of(plan_serving(before, stock(before, nodes)))
    kept = replace(made, groups=(("a",),) * 6, layout=replace(made.layout, replicas=6))

    plan = plan_of(rescale(after, kept, stock(after, nodes[:1])))

    assert made.pool == "h100-sxm-80gb"
    assert sorted(made.groups) == [("a",)] * 6 + [("b",)] * 4
    assert plan.groups == (("a",),) * 7


def test_instances_over_nodes_take_nodes_of_one_size() -> None:
    subject = a_subject(**LARGE)
    small = [a_node(f"small-{index}", gpus=4) for index in range(2)]

    apart = plan_serving(subject, stock(subject, [a_node("a"), *small])).outcome
    whole = plan_of(plan_serving(subject, stock(subject, [a_node("a"), *small, a_node("b")])))

    assert isinstance(apart, NoPlan)
    assert whole.groups == (("a", "b"),)


def test_a_load_that_changes_keeps_pods_whose_nodes_got_others_of_another_size_beside() -> None:
    before = a_subject(workload={"requestsPerSecond": 20}, replicas=None)
    after = a_subject(workload={"requestsPerSecond": 50}, replicas=None)
    nodes = [a_node("a"), a_node("b", gpus=4)]
    record = a_record_of(before, nodes[:1])

    changed = plan_anew(after, record, replace(ground(after, nodes), same_pods=True)).record

    assert changed is not None
    held = len(record.plan.groups)
    assert (changed.plan.pool, changed.plan.groups[:held]) == ("h100-sxm-80gb", record.plan.groups)
    assert {len(set(changed.plan.groups)), changed.plan.max_sequences} == {
        2,
        record.plan.max_sequences,
    }


PRICED = "shardwright.io/gpu-hour-price"
CHEAPEST = {"objective": {"optimizeFor": "Throughput"}}


def priced_nodes(price: str, count: int = 2, network_gbps: int = 200) -> list[dict[str, Any]]:
    return [
        a_node(f"{network_gbps}-{index}", network_gbps=network_gbps, labels={PRICED: price})
        for index in range(count)
    ]


def a_rate(requests_per_second: int, **spec: Any) -> Subject:
    load = {"requestsPerSecond": requests_per_second}
    return a_subject(**CHEAPEST | {"workload": load} | spec)


def after_another_load(edited: Subject, others: list[dict[str, Any]]) -> tuple[Plan, Plan]:
    """Return the plan for 20 requests a second on nodes at 3 an hour, and what becomes of it while it serves when
    the spec is edited and other nodes are there.
    """
    own = priced_nodes("3", network_gbps=400)
    before = a_record_of(a_rate(20), own)
    there = replace(ground(edited, [*own, *others]), same_pods=True)
    found = plan_anew(edited, before, there).record
    assert found
    return before.plan, found.plan


@pytest.mark.parametrize(("price", "stays"), [("2.9", True), ("2.2", True), ("1.9", False)])
def test_a_load_that_changes_keeps_the_layout_unless_another_is_half_again_as_good(
    price: str, *, stays: bool
) -> None:
    before, after = after_another_load(a_rate(30), priced_nodes(price))

    assert (after.pool == before.pool) is stays
    assert (set(before.groups) <= set(after.groups)) is stays
    assert len(after.groups) == 6


@pytest.mark.parametrize(("rate", "groups"), [(40, 8), (10, 2)])
def test_a_plan_that_was_kept_says_what_another_layout_would_bring_and_how_to_get_it(
    rate: int, groups: int
) -> None:
    _, worth = after_another_load(a_rate(rate), priced_nodes("2.4"))
    _, alike = after_another_load(a_rate(rate), priced_nodes("2.9"))

    stays = f"{groups} x TP1 on {worth.pool}: {STAYS}"
    assert worth.reasons[0].startswith(f"{stays}; {groups} x TP1 on ")
    assert worth.reasons[0].endswith(
        " would be 25% better by Throughput, and spec.replan: Always restarts all groups for it."
    )
    assert alike.reasons[0] == f"{stays}."


@pytest.mark.parametrize(
    ("edited", "moves"),
    [
        ({"workload": {"requestsPerSecond": 100}}, True),
        ({"parallelism": {"tensor": 2}}, True),
        ({"objective": {"optimizeFor": "Throughput", "tpotMilliseconds": 8}}, True),
        ({"budget": {"gpus": 6}}, False),
    ],
    ids=["no room", "another degree", "a limit", "a budget that it keeps"],
)
def test_a_layout_that_cannot_carry_the_load_as_the_spec_wants_it_gives_way(
    edited: dict[str, Any], *, moves: bool
) -> None:
    before, after = after_another_load(a_rate(30, **edited), priced_nodes("2.4", 3))

    assert after.carries_load
    assert (set(before.groups) <= set(after.groups)) is not moves


def test_without_pods_that_could_stay_a_load_that_changes_is_planned_as_a_new_one() -> None:
    edited, own = a_rate(30), priced_nodes("3", network_gbps=400)
    there = ground(edited, [*own, *priced_nodes("2.4")])
    found = plan_anew(edited, a_record_of(a_rate(20), own), there)
    assert found.record
    assert found.record.plan == plan_of(plan_serving(edited, there.inventory))
