"""What a reconcile has read and written, and what follows from it for the next step of the shell."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.members import GroupState, Situation
from shardwright.reconcile.next_step import Step
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.publish import Kept, Published
from shardwright.reconcile.snapshot import Cluster, ModelResource, Outcome, Refusal, Snapshot
from shardwright.reconcile.writes import Create, Delete, DryRunPod, Write
from shardwright.rendering.deployment import Owner
from tests.support.builders_reconcile import a_record, pod, stateful_set

MADE = Create(content=stateful_set())
ASKED = DryRunPod(content=pod("llama-0-0"), set_uid="uid-of-llama-0")
ENDED = Delete(kind="StatefulSet", namespace="models", name="llama-0", uid="uid-of-llama-0")
STANDING = GroupState(name="llama-0", situation=Situation.READY)


def refused(write: Write) -> Refusal:
    return Refusal(write=write, code=403, reason="Forbidden", message="a quota", passes=False)


def a_look(**snapshot: Any) -> Snapshot:
    given: dict[str, Any] = {"cluster": Cluster(), **snapshot}
    return Snapshot(
        resource=ModelResource(
            owner=Owner(name="llama", namespace="models", uid="uid"), generation=1
        ),
        subject=(),
        record=None,
        observed=Observed(objects={}),
        **given,
    )


def published(**changes: Any) -> Published:
    found = Findings(generation=1, **changes.pop("found", {}))
    return Published(status={}, events=(), again_at=None, found=found, **changes)


def test_a_dry_run_of_a_pod_changes_nothing_and_its_refusal_refuses_nothing() -> None:
    only_asked = Outcome(written=(ASKED,), refused=(refused(ASKED),))

    assert not only_asked.changed
    assert only_asked.refusal is None


def test_the_first_write_that_was_not_taken_is_the_one_to_try_again() -> None:
    outcome = Outcome(
        written=(ASKED, MADE), refused=(refused(ASKED), refused(ENDED), refused(MADE))
    )

    assert outcome.changed
    assert outcome.refusal == refused(ENDED)


def test_rounds_of_writes_are_one_outcome_in_their_order() -> None:
    first = Outcome(written=(ASKED,), refused=(refused(MADE),))

    assert first.then(Outcome(written=(MADE,), refused=(refused(ENDED),))) == Outcome(
        written=(ASKED, MADE), refused=(refused(MADE), refused(ENDED))
    )


def test_a_look_knows_the_gpus_that_others_keep_once_the_cluster_is_known() -> None:
    assert a_look().beside(16) == a_look(cluster=Cluster(gpus=16))
    assert a_look(cluster=None).beside(16) == a_look(cluster=None)


def test_only_what_the_api_server_has_shown_ends_a_group() -> None:
    step = Step(writes=(MADE, ENDED))

    assert step.doubtful_ends(a_look()) == {"llama-0"}
    assert step.doubtful_ends(a_look(certain=True)) == frozenset()
    assert Step(writes=(MADE,)).doubtful_ends(a_look()) == frozenset()


@pytest.mark.parametrize(
    ("changes", "leaves"),
    [
        ({}, True),
        ({"waits_for_capacity": True}, False),
        ({"found": {"cluster_known": False}}, False),
        ({"found": {"hidden": Problem(code="NotPermitted", what="a list")}}, False),
    ],
)
def test_a_model_leaves_the_line_when_it_is_known_to_wait_no_more(
    changes: dict[str, Any], *, leaves: bool
) -> None:
    assert published(**changes).leaves_the_line is leaves


def test_gpus_are_kept_anew_for_a_plan_without_groups_whose_gpus_are_not_kept() -> None:
    kept, free = Kept(record=a_record()), Cluster(reserved=False)
    standing = {"standing": (STANDING,)}

    assert published(kept=kept).newly_kept(free) == kept
    assert published(kept=kept).newly_kept(Cluster(reserved=True)) is None
    assert published(kept=kept, found=standing).newly_kept(free) is None
    assert published().newly_kept(free) is None


def test_a_model_fails_while_one_of_its_groups_does() -> None:
    failing = replace(STANDING, situation=Situation.UNREADY, failing=True)

    assert published(found={"standing": (STANDING, failing)}).failing
    assert not published(found={"standing": (STANDING,)}).failing
