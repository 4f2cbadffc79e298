"""Laws of whole histories: an operator around ``next_step`` on a small cluster, and everything that
can happen to both.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.errors import Problem
from shardwright.pipeline.replanning import Replanned
from shardwright.planning.report import NoPlan
from shardwright.reconcile import members
from shardwright.reconcile.members import Situation
from shardwright.reconcile.next_step import Step
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.snapshot import Ask, Outcome, Snapshot
from shardwright.rendering.labels import GROUP
from shardwright.rendering.names import group_name
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import ONE_NODE, OWNER, TWO_NODES, Operator
from tests.support.examples import examples
from tests.support.small_cluster import LOAD_SECONDS, READY, UNREADY, Refuses, SmallCluster

SELECTOR = {"pool": "serving"}
HALF_A_NODE: dict[str, Any] = {"parallelism": {"tensor": 4, "pipeline": 1}}
SHAPES = {"half a node": HALF_A_NODE, "a node": ONE_NODE, "two nodes": TWO_NODES}
NODES_OF = {"half a node": 0.5, "a node": 1, "two nodes": 2}
RECOVERED_SECONDS = 2400
"""How long after the end of a fault everything serves again: the longest patience with a node, a
move and its loading.
"""

histories = examples(15)


MOVES: Final[Mapping[Situation, frozenset[Situation]]] = {
    Situation.STARTING: frozenset(
        {
            Situation.READY,
            Situation.WAITING_FOR_QUOTA,
            Situation.STOPPING,
            Situation.UNREADY,
            Situation.OUTDATED,
        }
    ),
    Situation.WAITING_FOR_QUOTA: frozenset(
        {Situation.STARTING, Situation.READY, Situation.STOPPING}
    ),
    Situation.READY: frozenset(
        {Situation.UNREADY, Situation.STARTING, Situation.OUTDATED, Situation.STOPPING}
    ),
    Situation.UNREADY: frozenset(
        {Situation.READY, Situation.STARTING, Situation.OUTDATED, Situation.STOPPING}
    ),
    Situation.OUTDATED: frozenset(
        {Situation.STOPPING, Situation.READY, Situation.UNREADY, Situation.STARTING}
    ),
    Situation.STOPPING: frozenset({Situation.STARTING, Situation.BACKING_OFF, Situation.STOPPED}),
    Situation.BACKING_OFF: frozenset({Situation.STARTING, Situation.STOPPED, Situation.STOPPING}),
    Situation.STOPPED: frozenset({Situation.STARTING, Situation.STOPPING, Situation.BACKING_OFF}),
}
"""From where a group goes where, as the picture in ``reconcile/members.py`` shows."""


def serving(shape: str, groups: int, spare: int, **spec: Any) -> Operator:
    """Return an operator whose groups serve, with some nodes to spare."""
    return _serving(shape, groups, spare, json.dumps(spec)).fork()


@cache
def _serving(shape: str, groups: int, spare: int, spec: str) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(-int(-groups * NODES_OF[shape] // 1) + spare, labels=SELECTOR)
    selects = {"placement": {"nodeSelector": SELECTOR}}
    operator = Operator(cluster, SHAPES[shape] | selects | {"replicas": groups} | json.loads(spec))
    operator.run(LOAD_SECONDS + 30)
    assert len(cluster.serving()) == groups
    operator.written.clear()
    return operator


def until_all_rest(operator: Operator, groups: int) -> None:
    """Let time pass until every group has had its turn."""
    for _ in range((groups + 1) * 4):
        operator.run(LOAD_SECONDS + 100, step=20)
        if set(operator.situations.values()) == {Situation.READY}:
            break
    assert operator.cluster.serving().keys() == names(groups)


def until_all_serve(operator: Operator, seconds: int, groups: int) -> None:
    """Let time pass until all groups serve and a while after, at most so long."""
    for _ in range(0, seconds, 60):
        operator.run(60)
        if len(operator.cluster.serving()) == groups:
            break
    operator.run(60)
    assert operator.cluster.serving().keys() == names(groups)


def names(count: int) -> set[str]:
    return {group_name(OWNER.name, index) for index in range(count)}


def crash(operator: Operator, name: str) -> None:
    """Let the engine of a pod end, and the kubelet start it again."""
    item = operator.cluster.pods.get(name)
    if item and item["spec"].get("nodeName") and "deletionTimestamp" not in item["metadata"]:
        item["status"] |= {"containerStatuses": crashed(name)["status"]["containerStatuses"]}
        operator.cluster.version += 1


FAULTS: dict[str, dict[str, Any] | None] = {
    "deleted": None,
    "not ready": {"ready": False},
    "relabelled": {"labels": {}},
    "tainted": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
    "taken by its autoscaler": {
        "taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    },
    "degraded": {"gpus": 7},
    "cordoned": {"cordoned": True},
    "unknown": {"product": "NVIDIA-R100"},
}
"""What becomes of a node, by what is said of it; None: it is gone."""


HARMLESS = FAULTS.keys() - {"deleted", "not ready"}
"""Those that end no pod: nothing moves because of them."""


def strike(cluster: SmallCluster, node: str, fault: str, *, drained: bool) -> None:
    changes = FAULTS[fault]
    if changes is None:
        cluster.delete_node(node)
    else:
        cluster.set_node(node, **{"labels": SELECTOR} | changes)
    if drained and node in cluster.nodes:
        cluster.drain(node)


@histories
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    groups=st.integers(1, 4),
    fault=st.sampled_from(sorted(FAULTS)),
    drained=st.booleans(),
    lasts=st.none() | st.sampled_from([20, 100, 320, 700]),
    restarted=st.booleans(),
    at=st.integers(0, 9),
)
def test_a_fault_of_one_node_costs_at_most_the_groups_on_it_and_moves_no_other(
    *,
    shape: str,
    groups: int,
    fault: str,
    lasts: int | None,
    at: int,
    drained: bool,
    restarted: bool,
) -> None:
    operator = serving(shape, groups, spare=1)
    cluster, before = operator.cluster, operator.cluster.serving()
    used = sorted({item["spec"]["nodeName"] for item in cluster.pods.values()})
    node = used[at % len(used)]
    stood = cluster.standing_on(node)
    others = (
        before
        if fault in HARMLESS and not drained
        else {name: before[name] for name in before if name not in stood}
    )
    places = planned(operator)

    strike(cluster, node, fault, drained=drained)
    for passed in range(0, (lasts or 0) + RECOVERED_SECONDS, 20):
        if passed == lasts:
            cluster.set_node(node, labels=SELECTOR)
        if restarted and passed == 60:
            operator.since, operator.kept_out = {}, {}
        operator.run(20, step=10)
        assert {name: pods for name, pods in cluster.serving().items() if name in others} == others
        assert all(
            now == was
            for name, now, was in zip(sorted(before), planned(operator), places, strict=True)
            if name in others
        )
        if passed > (lasts or 0) + 400 and len(cluster.serving()) == groups:
            break

    assert cluster.serving().keys() == before.keys()
    if fault == "not ready" and not drained and lasts in {20, 100}:
        assert cluster.serving() == before
    assert_moves_are_drawn(operator)


def planned(operator: Operator) -> Sequence[tuple[str, ...]]:
    assert operator.kept
    return operator.kept.record.plan.groups


def assert_moves_are_drawn(operator: Operator) -> None:
    assert [(a, b) for a, b in operator.moves if b not in MOVES[a]] == []


@dataclass
class Stop:
    """One batch of writes: the groups that were down before it, those that it takes down, and
    whether all of the first waited.
    """

    down: set[str]
    stopped: set[str]
    waiting: bool


@dataclass
class Contrary(Operator):
    """An operator whose planner gives groups each other's nodes when it plans anew, and that notes
    what it stops.
    """

    order: Sequence[int] = ()
    stops: list[Stop] = field(default_factory=list)

    def answer(self, snapshot: Snapshot, ask: Ask) -> Replanned:
        found = super().answer(snapshot, ask)
        if (
            ask.choice is not PlanChoice.REPLAN
            or ask.beside
            or found.record is None
            or isinstance(found.report.outcome, NoPlan)
        ):
            return found
        groups = found.record.plan.groups
        nodes = [node for group in groups for node in group]
        order = [index for index in self.order if index < len(nodes)]
        moved = [nodes[index] for index in order]
        size = found.record.plan.nodes_per_replica
        plan = replace(
            found.record.plan,
            groups=tuple(tuple(moved[at : at + size]) for at in range(0, len(moved), size)),
        )
        return replace(
            found,
            record=replace(found.record, plan=plan),
            report=replace(found.report, outcome=plan),
        )

    def _write(self, step: Step) -> Outcome:
        wanted, before = names(self.spec["replicas"]), self.cluster.serving()
        unplaced = {
            item["metadata"]["name"].rpartition("-")[0]
            for item in self.cluster.pods.values()
            if not item["spec"].get("nodeName") and "deletionTimestamp" not in item["metadata"]
        }
        outcome = super()._write(step)
        stopped = {name for name in before if name in wanted and name not in self.cluster.serving()}
        down = wanted - before.keys()
        if stopped:
            self.stops.append(
                Stop(down=down, stopped=stopped, waiting=bool(down) and down <= unplaced)
            )
        return outcome


def contrary(order: Sequence[int], operator: Operator) -> Contrary:
    """Return an operator in its place whose planner is contrary."""
    fields = {name: getattr(operator, name) for name in operator.__dataclass_fields__}
    return Contrary(**fields, order=order)


EDITS: dict[str, Callable[[Operator, int], None]] = {
    "env": lambda operator, count: operator.edit(
        engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO" if count % 2 else "WARN"}]}
    ),
    "restart": lambda operator, count: operator.annotations.update(
        {"shardwright.io/restart": str(count)}
    ),
    "go back": lambda operator, count: operator.annotations.update(
        {"shardwright.io/rollback-to": f"1@{count}"}
    ),
    "silence": lambda operator, count: operator.edit(readiness={"silenceSeconds": 100 + count}),
    "nothing": lambda _operator, _count: None,
}


@histories
@given(
    shape=st.sampled_from(["a node", "two nodes"]),
    groups=st.integers(2, 4),
    spare=st.integers(0, 1),
    rollout=st.fixed_dictionaries(
        {"maxUnavailable": st.integers(1, 2), "maxSurge": st.integers(0, 1)}
    ),
    turns=st.none() | st.just(1),
    order=st.permutations(range(9)),
    edits=st.lists(
        st.tuples(st.sampled_from(sorted(EDITS)), st.sampled_from([0, 20, 130, 400])),
        min_size=1,
        max_size=3,
    ),
)
def test_groups_down_on_purpose_pass_the_limit_by_one_only_if_all_of_them_wait_for_that_one(
    *,
    shape: str,
    groups: int,
    spare: int,
    rollout: dict[str, int],
    turns: int | None,
    order: list[int],
    edits: list[tuple[str, int]],
) -> None:
    operator = contrary(order, serving(shape, groups, spare, rollout=rollout))
    operator.most_moving = turns
    for count, (edit, seconds) in enumerate(edits):
        EDITS[edit](operator, count)
        operator.run(seconds)
    until_all_rest(operator, groups)

    for stop in operator.stops:
        assert len(stop.down) + len(stop.stopped) <= rollout["maxUnavailable"] or (
            stop.waiting and len(stop.stopped) == 1
        )
    assert not operator.cluster.mixed
    assert operator.reconcile().status["conditions"][0]["reason"] == "Serving"
    assert_moves_are_drawn(operator)


def test_a_next_generation_that_is_up_when_a_model_goes_back_takes_over_and_frees_its_place() -> (
    None
):
    rollout = {"maxUnavailable": 1, "maxSurge": 1}
    operator = contrary([3, 4, 6, 5, 7, 2, 8, 0, 1], serving("two nodes", 3, 0, rollout=rollout))
    EDITS["env"](operator, 0)
    operator.run(130)
    assert operator.cluster.sets().keys() == {*names(3), "llama-2-g1"}
    assert operator.cluster.serving().keys() == {"llama-2"}  # on nodes of both others

    EDITS["go back"](operator, 1)
    until_all_rest(operator, 3)

    assert operator.cluster.sets().keys() == {"llama-0", "llama-1", "llama-2-g1"}
    assert operator.reconcile().status["conditions"][0]["reason"] == "Serving"


def typo(operator: Operator) -> None:
    operator.problems = (Problem(code="InvalidSpec", what="spec.engine.args: no-such-argument"),)


def no_room(operator: Operator) -> None:
    operator.edit(parallelism={"tensor": 8, "pipeline": 6})


def unreadable_record(operator: Operator) -> None:
    operator.cluster.objects["ConfigMap", "llama-plan"]["data"]["plan.json"] = "{"


def no_scheduler(operator: Operator) -> None:
    operator.scheduler_problem = Problem(
        code="SchedulerUnavailable", what="Coscheduling", limit="is not here"
    )


def refused(operator: Operator) -> None:
    operator.cluster.refuses = [
        Refuses(kind=kind) for kind in ("Service", "ConfigMap", "PodDisruptionBudget")
    ]


TROUBLES = [typo, no_room, unreadable_record, no_scheduler, refused]


@histories
@given(
    groups=st.integers(1, 3),
    happened=st.lists(
        st.tuples(
            st.sampled_from(range(len(TROUBLES))),
            st.none() | st.integers(0, 2),
            st.sampled_from([10, 60, 330]),
        ),
        min_size=1,
        max_size=4,
    ),
    paused=st.booleans(),
)
def test_what_runs_is_left_running_and_kept_alive_by_all_that_is_no_plan(
    groups: int, happened: list[tuple[int, int | None, int]], *, paused: bool
) -> None:
    operator = serving("two nodes", groups, spare=0)
    before, spec, broken = operator.cluster.serving(), operator.spec, set()
    record = operator.cluster.objects["ConfigMap", "llama-plan"]["data"]["plan.json"]
    for trouble, rank, seconds in happened:
        TROUBLES[trouble](operator)
        operator.spec = operator.spec | {"paused": paused}
        if rank is not None and rank < groups:
            crash(operator, f"llama-{rank}-1")
            broken.add(f"llama-{rank}")
        operator.run(seconds)
        standing = {
            name: pods for name, pods in operator.cluster.serving().items() if name not in broken
        }
        assert standing == {name: pods for name, pods in before.items() if name not in broken}
    assert not (paused and operator.written)
    operator.spec = operator.spec | {"paused": False}
    until_all_serve(operator, 1500, groups)

    operator.cluster.objects["ConfigMap", "llama-plan"]["data"]["plan.json"] = record
    operator.cluster.refuses, operator.problems, operator.scheduler_problem = ([], (), None)
    operator.spec = spec
    until_all_serve(operator, 600, groups)
    after = operator.cluster.serving()
    assert {name: pods for name, pods in after.items() if name not in broken} == {
        name: pods for name, pods in before.items() if name not in broken
    }
    assert after.keys() == before.keys()
    assert_moves_are_drawn(operator)


def probe_fails(operator: Operator, name: str) -> None:
    """Let the readiness probe of an engine fail once."""
    item = operator.cluster.pods.get(name)
    if item and item["status"]["conditions"] == [READY]:
        item["status"]["conditions"] = [UNREADY]
        operator.cluster.version += 1


def gate(operator: Operator, _name: str) -> None:
    """Let a queue hold pods back from now on."""
    operator.cluster.queued = True


def scale_by_hand(operator: Operator, name: str) -> None:
    item = operator.cluster.sets().get(name.rpartition("-")[0])
    if item:
        item["spec"]["replicas"] = 1
        operator.cluster.version += 1


def delete_set(operator: Operator, name: str) -> None:
    operator.cluster.objects.pop(("StatefulSet", name.rpartition("-")[0]), None)
    operator.cluster.version += 1


def delete_pod(operator: Operator, name: str) -> None:
    if name in operator.cluster.pods:
        operator.cluster.end(operator.cluster.pods[name])


def roll(operator: Operator, _name: str) -> None:
    operator.edit(readiness={"silenceSeconds": 100 + operator.generation})


def take(operator: Operator, _name: str) -> None:
    operator.cluster.others["h100-0"] = 8


def give_back(operator: Operator, _name: str) -> None:
    operator.cluster.others.clear()
    operator.cluster.admit()


def nothing(_operator: Operator, _name: str) -> None:
    pass


ACCIDENTS: dict[str, Callable[[Operator, str], None]] = {
    "crash": crash,
    "probe": probe_fails,
    "gate": gate,
    "scale": scale_by_hand,
    "delete set": delete_set,
    "delete pod": delete_pod,
    "roll": roll,
    "taken": take,
    "free": give_back,
    "nothing": nothing,
}


@histories
@given(
    stop=st.booleans(),
    happened=st.lists(
        st.tuples(
            st.sampled_from(sorted(ACCIDENTS)),
            st.sampled_from(["llama-0-0", "llama-0-1", "llama-1-1"]),
            st.sampled_from([0, 10, 40, 200, 700]),
        ),
        min_size=2,
        max_size=7,
    ),
)
@example(
    stop=True, happened=[("crash", "llama-0-0", 200), ("crash", "llama-0-1", 200)]
)  # its budget is spent
@example(stop=False, happened=[("gate", "", 0), ("crash", "llama-0-0", 40)])
def test_groups_only_ever_go_where_the_drawing_says_and_come_back(
    happened: list[tuple[str, str, int]], *, stop: bool
) -> None:
    restart = {"budget": 1, "maxDelaySeconds": 120, "onBudgetSpent": "Stop" if stop else "Retry"}
    operator = serving("two nodes", 2, spare=0, restart=restart)
    for accident, name, seconds in happened:
        ACCIDENTS[accident](operator, name)
        operator.run(seconds)
    assert_moves_are_drawn(operator)

    give_back(operator, "")
    operator.annotations["shardwright.io/restart"] = "now"
    until_all_serve(operator, 3600, 2)
    assert not operator.cluster.mixed
    assert_moves_are_drawn(operator)


@pytest.mark.parametrize(
    ("happened", "situation"),
    [
        ([("crash", "llama-0-0", 200), ("crash", "llama-0-1", 200)], Situation.STOPPED),
        ([("gate", "", 0), ("crash", "llama-0-0", 40)], Situation.WAITING_FOR_QUOTA),
        ([("probe", "llama-0-0", 0)], Situation.UNREADY),
        ([("roll", "", 0)], Situation.OUTDATED),
        ([("roll", "", 0)], Situation.STOPPING),
        ([("roll", "", 60)], Situation.STARTING),
        ([("crash", "llama-0-0", 200), ("crash", "llama-0-1", 20)], Situation.STOPPED),
        ([("taken", "llama-0-0", 0), ("crash", "llama-0-0", 340)], Situation.BACKING_OFF),
    ],
)
def test_histories_come_by_every_situation(
    happened: list[tuple[str, str, int]], situation: Situation
) -> None:
    operator = serving("two nodes", 2, spare=0, restart={"budget": 1, "onBudgetSpent": "Stop"})
    for accident, name, seconds in happened:
        ACCIDENTS[accident](operator, name)
        operator.run(seconds)
    assert situation in operator.situations.values()
    assert_moves_are_drawn(operator)


@pytest.mark.parametrize("situation", list(Situation))
def test_every_situation_is_drawn_and_has_its_moves(situation: Situation) -> None:
    assert f" {situation}" in (members.__doc__ or "").replace("▶", " ").replace("──", "  ")
    assert situation not in MOVES[situation]
    assert MOVES[situation]
    assert any(situation in there for there in MOVES.values())


def a_node_comes(operator: Operator, number: int) -> None:
    operator.cluster.add_nodes(1, first=100 + number, labels=SELECTOR)


def a_node_is_lost(operator: Operator, number: int) -> None:
    nodes = sorted(operator.cluster.nodes)
    if len(nodes) > 1:
        operator.cluster.delete_node(nodes[number % len(nodes)])


def others_take_what_is_free(operator: Operator, number: int) -> None:
    del number
    cluster = operator.cluster
    for node in sorted(cluster.nodes):
        if not cluster.gpus(node) and node not in cluster.others:
            cluster.others[node] = 8
            cluster.version += 1


def others_give_it_back(operator: Operator, number: int) -> None:
    del number
    operator.cluster.others.clear()
    operator.cluster.version += 1


def another_number_is_wanted(operator: Operator, number: int) -> None:
    operator.edit(replicas=1 + number)


TURNS: dict[str, Callable[[Operator, int], None]] = {
    "a node comes": a_node_comes,
    "a node is lost": a_node_is_lost,
    "others take": others_take_what_is_free,
    "others give back": others_give_it_back,
    "another number": another_number_is_wanted,
}


def room(operator: Operator, size: int) -> int:
    cluster = operator.cluster
    return len([node for node in cluster.nodes if node not in cluster.others]) // size


def said_of(operator: Operator) -> dict[str, tuple[str, str]]:
    status = operator.reconcile().status
    return {item["type"]: (item["status"], item["message"]) for item in status["conditions"]}


@histories
@given(
    shape=st.sampled_from(["a node", "two nodes"]),
    nodes=st.integers(1, 7),
    wanted=st.integers(1, 4),
    turns=st.lists(st.tuples(st.sampled_from(sorted(TURNS)), st.integers(0, 4)), max_size=5),
)
@example(shape="a node", nodes=3, wanted=4, turns=[("a node comes", 0)])
@example(shape="a node", nodes=4, wanted=4, turns=[("a node is lost", 0)])
@example(shape="a node", nodes=2, wanted=1, turns=[("another number", 2)])
def test_as_many_groups_serve_as_fit_whatever_has_happened_before(
    shape: str, nodes: int, wanted: int, turns: list[tuple[str, int]]
) -> None:
    cluster, size = SmallCluster(), int(NODES_OF[shape])
    cluster.add_nodes(nodes, labels=SELECTOR)
    selects = {"placement": {"nodeSelector": SELECTOR}}
    operator = Operator(cluster, SHAPES[shape] | selects | {"replicas": wanted})
    for turn, number in [("nothing", 0), *turns]:
        before = cluster.serving()
        if turn in TURNS:
            TURNS[turn](operator, number)
        hit = [
            item["metadata"]["labels"][GROUP]
            for item in cluster.pods.values()
            if item["spec"].get("nodeName", "") not in cluster.nodes
        ]
        stand = before.keys() - set(hit)
        operator.run(LOAD_SECONDS + 700, step=20)

        wanted = operator.spec["replicas"]
        after, fit = cluster.serving(), min(wanted, room(operator, size))
        assert len(after) == fit
        if wanted >= len(before):
            assert all(after[name] == before[name] for name in stand)
        said = said_of(operator)
        assert said["Ready"][0] == str(fit > 0)
        if fit:
            assert said["Stalled"][0] == "False"
            assert ("PartlyPlaced" in said) is (fit < wanted) is (said["Reconciling"][0] == "True")
            assert said.get("PartlyPlaced", ("", f"{fit} of {wanted} placed"))[1].startswith(
                f"{fit} of {wanted} placed"
            )
