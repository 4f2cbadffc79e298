"""PriorityClasses: what a model counts, and that nothing is created for one that does not exist."""

import pytest

from shardwright.reconcile.next_step import next_step
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.quotas import Priorities, PriorityClass
from shardwright.reconcile.snapshot import Cluster, ModelResource, Snapshot
from tests.support.builders_reconcile import NOON
from tests.support.builders_subject import a_subject

SERVING = Priorities(
    classes={"serving": PriorityClass(value=1000), "batch": PriorityClass(value=-10)}
)


def snapshot(name: str, priorities: Priorities) -> Snapshot:
    subject = a_subject(pod={"priorityClassName": name})
    return Snapshot(
        resource=ModelResource(owner=subject.owner, generation=1),
        subject=subject,
        record=None,
        observed=Observed(objects={}, members=()),
        cluster=Cluster(priorities=priorities),
    )


@pytest.mark.parametrize(
    ("name", "value"), [("serving", 1000), ("batch", -10), ("gone", 0), (None, 0)]
)
def test_a_model_counts_as_much_as_its_class(name: str | None, value: int) -> None:
    assert SERVING.value_of(name) == value


def test_of_several_default_classes_the_least_counts_for_who_names_none() -> None:
    defaults = {
        "a": PriorityClass(value=7, is_default=True),
        "b": PriorityClass(value=5, is_default=True),
    }

    assert Priorities(classes=defaults).value_of(None) == 5


def test_priority_classes_are_added_changed_and_removed() -> None:
    changed = SERVING.changed(
        {"batch": None, "serving": PriorityClass(value=2), "new": PriorityClass(value=3)}
    )

    assert changed == Priorities(
        classes={"serving": PriorityClass(value=2), "new": PriorityClass(value=3)}
    )


def test_nothing_is_asked_or_written_for_a_class_that_does_not_exist() -> None:
    step = next_step(snapshot("gone", SERVING), NOON)

    assert (step.ask, step.writes) == (None, ())
    assert step.published
    (ready,) = (item for item in step.published.status["conditions"] if item["type"] == "Ready")
    assert ready["reason"] == "InvalidSpec"
    assert ready["message"].startswith(
        "spec.pod.priorityClassName: PriorityClass gone does not exist in this cluster"
    )


def test_a_model_of_a_class_that_exists_is_planned() -> None:
    assert next_step(snapshot("serving", SERVING), NOON).ask is not None
