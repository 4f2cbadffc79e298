"""The wire: what is large crosses once, both ends keep the same, and nothing is lost on it but
labels of nodes.
"""

from __future__ import annotations

import json
from dataclasses import replace

from shardwright.controller.ipc import SharedValues
from shardwright.hardware.pools import build_inventory
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import MakePlan, Planned, Resolve, Stock
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Administration, Subject
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import LARGE, a_subject, h100_facts

ASK = Ask(on=None, choice=PlanChoice.REPLAN)
WHOLE = build_inventory(h100_facts(4), ())


def ends(room_bytes: int = 4 << 20) -> tuple[SharedValues, SharedValues]:
    return SharedValues(decides=True, room_bytes=room_bytes), SharedValues(decides=False)


def test_a_question_and_its_answer_arrive_as_they_were() -> None:
    here, there = ends()
    work = MakePlan(
        subject=a_subject(**LARGE), ask=ASK, stock=Stock(whole=WHOLE, taken={"h100-00": 8})
    )

    arrived: MakePlan = there.loads(here.dumps(work))
    answer: Planned = here.loads(there.dumps(arrived.answer()))

    assert arrived.subject == work.subject
    assert arrived.stock.taken == work.stock.taken
    unlabelled = [replace(node, labels={}) for node in WHOLE.pools[0].nodes]
    assert arrived.stock.whole == replace(
        WHOLE, pools=(replace(WHOLE.pools[0], nodes=tuple(unlabelled)),)
    )
    assert answer == work.answer()


def test_models_traits_and_nodes_cross_once_in_either_direction() -> None:
    here, there = ends()
    asked = Resolve(
        text=json.dumps(a_sharded_model("one", "models", **LARGE)),
        config_text=None,
        administration=Administration(),
    )
    subjects = []
    sizes = []
    for _ in range(2):
        question = here.dumps(asked)
        answer = there.dumps(there.loads(question).answer())
        subjects.append(here.loads(answer))
        plan = here.dumps(
            MakePlan(subject=subjects[-1], ask=ASK, stock=Stock(whole=WHOLE, taken={}))
        )
        there.loads(plan)
        sizes.append((len(answer), len(plan)))

    first, second = subjects
    assert isinstance(first, Subject)
    assert (second.model is first.model, second.traits is first.traits) == (True, True)
    assert sizes[0][0] > 50_000  # bytes
    assert max(sizes[1]) < 5_000
    assert sizes[0][1] < 10_000  # of the four nodes; the model is known already


def test_what_there_is_no_room_for_is_forgotten_at_both_ends_and_crosses_again() -> None:
    here, there = ends(room_bytes=1)
    for _ in range(2):
        for subject in (a_subject(), a_subject(**LARGE)):
            arrived: MakePlan = there.loads(
                here.dumps(MakePlan(subject=subject, ask=ASK, stock=Stock(whole=WHOLE, taken={})))
            )
            assert arrived.subject == subject
            assert set(here._values) == set(there._values)
    assert there.loads(here.dumps("nothing of them")) == "nothing of them"
    assert len(there._values) == 1
