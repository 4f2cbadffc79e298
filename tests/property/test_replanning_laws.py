"""Laws of groups that lose their nodes: they move where there is room, the others stay, and no GPU
is planned twice.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.resource import parse_manifest
from shardwright.hardware.nodes import GpuUsage, read_node
from shardwright.pipeline.assembly import plan_serving, record_of
from shardwright.pipeline.replanning import Ground, plan_anew, rehouse
from shardwright.planning.report import Plan
from shardwright.resolving.model import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_resource import a_sharded_model
from tests.support.examples import examples

NODES = tuple(f"h100-{index:02}" for index in range(5))
GPUS = 8


def subject_of(tensor: int, replicas: int = 1) -> Subject:
    manifest = a_sharded_model(parallelism={"tensor": tensor, "pipeline": 1}, replicas=replicas)
    return resolve(Question(resource=parse_manifest(manifest)))


SUBJECTS = {tensor: subject_of(tensor) for tensor in (4, 8)}
FACTS = {
    node["metadata"]["name"]: fact for node in h100_nodes(len(NODES)) if (fact := read_node(node))
}

WHOLE = {tensor: take_stock(subject, FACTS.values(), ()) for tensor, subject in SUBJECTS.items()}


def plan_on(subject: Subject, nodes: list[str]) -> Plan:
    """Return a plan of one group on each of these nodes."""
    outcome = plan_serving(subject, take_stock(subject, FACTS.values(), ())).outcome
    assert isinstance(outcome, Plan)
    return replace(
        outcome,
        groups=tuple((node,) for node in nodes),
        layout=replace(outcome.layout, replicas=len(nodes)),
    )


@examples(20)
@given(
    st.sampled_from(sorted(SUBJECTS)),
    st.permutations(NODES),
    st.integers(1, 5),
    st.sets(st.sampled_from(NODES)),
)
def test_as_many_groups_as_have_room_leave_lost_nodes_and_nobody_else_moves(
    tensor: int, order: list[str], groups: int, lost: set[str]
) -> None:
    subject = SUBJECTS[tensor]
    plan = plan_on(subject, order[:groups])
    left = take_stock(subject, [fact for name, fact in FACTS.items() if name not in lost], ())

    leaving = frozenset(
        index for index, group in enumerate(plan.groups) if lost.intersection(group)
    )
    moved, short = rehouse(subject, plan, left, leaving)

    assert len(moved.groups) == groups
    assert all(
        now == was
        for was, now in zip(plan.groups, moved.groups, strict=True)
        if lost.isdisjoint(was)
    )
    homed = [node for (node,) in moved.groups if node not in lost]
    held = Counter(homed)
    assert all(count * tensor <= GPUS for count in held.values())
    room = sum((GPUS - held[node] * tensor) // tensor for node in NODES if node not in lost)
    assert (short is None) is (len(homed) == groups)
    assert short is None or room == 0


@examples(30)
@given(
    st.sampled_from(sorted(SUBJECTS)),
    st.lists(st.sampled_from(NODES), min_size=1, max_size=6),
    st.integers(1, 6),
    st.dictionaries(st.sampled_from(NODES), st.sampled_from([0, 4, 8]), max_size=3),
)
def test_as_many_groups_as_fit_are_planned_none_on_a_gpu_twice_and_those_that_can_stay_do(
    tensor: int, held: list[str], wanted: int, taken: dict[str, int]
) -> None:
    held = [
        node for index, node in enumerate(held) if (held[:index].count(node) + 1) * tensor <= GPUS
    ]
    subject = subject_of(tensor, wanted)
    others = [
        GpuUsage(node=node, resource="nvidia.com/gpu", gpus=gpus)
        for node, gpus in taken.items()
        if gpus
    ]
    inventory = take_stock(subject, FACTS.values(), others)
    record = record_of(
        subject,
        replace(
            plan_serving(SUBJECTS[tensor], WHOLE[tensor]), outcome=plan_on(SUBJECTS[tensor], held)
        ),
    )

    found = plan_anew(subject, record, Ground(inventory=inventory))

    room = {node: GPUS - taken.get(node, 0) for node in NODES}
    most = min(wanted, sum(gpus // tensor for gpus in room.values()))
    assert found.record is not None
    if not most:
        assert (found.record, found.short is None) == (record, False)
        return
    groups = [node for (node,) in found.record.plan.groups]
    assert (len(groups), found.record.plan.missing) == (most, wanted - most)
    assert (found.lacks is None) is (most == wanted)
    assert all(count * tensor <= room[node] for node, count in Counter(groups).items())
    stays = Counter[str]()
    for index, node in enumerate(held[:most]):
        if (stays[node] + 1) * tensor <= room[node]:
            stays[node] += 1
            assert groups[index] == node
