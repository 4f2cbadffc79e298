"""A group of which Kubernetes preempts a pod stops as a whole, keeps nothing, and comes back as a
whole when there is room.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from shardwright.api.record import PlanRecord
from shardwright.hardware.nodes import read_node
from shardwright.pipeline.assembly import plan_serving, record_of
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.next_step import Step, next_step
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.revisions import AskedSpec
from shardwright.reconcile.snapshot import Cluster, ModelResource, Outcome, Snapshot
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_reconcile import NOON, World
from tests.support.builders_subject import LARGE, a_subject, stock

NODES = h100_nodes(2)
NAMES = tuple(node["metadata"]["name"] for node in NODES)
ROOM, NO_ROOM = dict.fromkeys(NAMES, 8), {NAMES[0]: 8, NAMES[1]: 0}


class Life:
    """One group of two pods, and the cluster around it; ``free`` is what others leave of its
    nodes.
    """

    def __init__(self) -> None:
        self.subject: Subject = a_subject(model=LARGE["model"])
        whole = stock(self.subject, NODES)
        record = record_of(self.subject, plan_serving(self.subject, whole))
        assert record is not None
        self.record: PlanRecord = record
        self.world = World()
        self.free = ROOM
        self.asked: list[PlanChoice] = []

    def reconcile(self, now: datetime) -> Step:
        """Look once, with a planner that finds no other place, and write what comes out; return the
        last step.
        """
        facts = {
            name: fact for node, name in zip(NODES, NAMES, strict=True) if (fact := read_node(node))
        }
        snapshot = Snapshot(
            resource=ModelResource(owner=self.subject.owner, generation=1),
            subject=self.subject,
            record=self.record,
            observed=self.world.observed(),
            cluster=Cluster(nodes=facts, free=self.free),
            certain=True,
        )
        while True:
            step = next_step(snapshot, now)
            if step.ask:
                self.asked.append(step.ask.choice)
                short = plan_serving(self.subject, stock(self.subject, NODES[:1])).outcome
                snapshot = snapshot.answered(
                    step.ask,
                    Replanned(
                        record=self.record,
                        report=self.record.report(),
                        short=short,  # type: ignore[arg-type]
                    ),
                )
                continue
            if step.tell:
                snapshot = replace(snapshot, told=AskedSpec(text='{"spec": {}}'))
                continue
            self.world.write(step.writes)
            if step.published:
                return step
            snapshot = (
                snapshot.put_down(step.records, Outcome())
                if step.records
                else snapshot.done(Outcome(written=step.writes))
            )

    def run(self, now: datetime) -> Step:
        """Look and let the cluster follow until it is at rest."""
        for _ in range(6):
            step = self.reconcile(now)
            self.world.settle()
        return step

    @property
    def pods(self) -> int:
        return len(self.world.pods)

    def preempt(self) -> None:
        item = self.world.pods[sorted(self.world.pods)[1]]
        item["metadata"] |= {
            "deletionTimestamp": NOON.isoformat(),
            "deletionGracePeriodSeconds": 30,
        }
        item["status"]["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        )


def kept(step: Step) -> Kept | None:
    assert step.published
    return step.published.kept


def test_a_preempted_group_waits_at_zero_for_room_and_keeps_no_gpus_meanwhile() -> None:
    life = Life()
    life.run(NOON)
    assert life.pods == 2

    life.preempt()
    life.free = NO_ROOM
    step = life.run(NOON + timedelta(hours=1))

    assert life.pods == 0
    assert kept(step) == Kept(record=life.record, released=frozenset({0}))
    assert step.published
    assert step.published.waits_for_capacity
    assert set(life.asked) == {PlanChoice.REHOUSE}
    (group,) = step.published.found.groups
    assert [wait.what for wait in group.waits] == ["Room"]


def test_a_preempted_group_comes_back_as_a_whole_when_there_is_room_and_has_its_gpus_kept() -> None:
    life = Life()
    life.run(NOON)
    life.preempt()
    life.free = NO_ROOM
    life.run(NOON + timedelta(minutes=1))
    assert life.pods == 0

    life.free = ROOM
    step = life.run(NOON + timedelta(minutes=2))

    assert life.pods == 2
    assert kept(step) == Kept(record=life.record)


def test_a_group_whose_gpus_nobody_took_starts_again_at_once() -> None:
    life = Life()
    life.run(NOON)
    life.preempt()

    life.run(NOON + timedelta(minutes=1))

    assert (life.pods, life.asked) == (2, [])


def test_a_group_whose_preempted_pod_was_never_seen_to_end_waits_for_room_all_the_same() -> None:
    life = Life()
    life.run(NOON)
    name = sorted(life.world.pods)[1]
    life.world.pods[name] = {
        **life.world.pods[name],
        "metadata": {**life.world.pods[name]["metadata"], "uid": "another"},
    }
    life.free = NO_ROOM

    step = life.run(NOON + timedelta(minutes=1))

    assert life.pods == 0
    assert kept(step) == Kept(record=life.record, released=frozenset({0}))
