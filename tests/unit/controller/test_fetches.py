"""What the pod of a Job has left is read from the pod that the Job controls, and from no other of
its label.
"""

from __future__ import annotations

from typing import Any

from shardwright.controller.fetches import left_by

JOB = "0a1b2c3d-job"


def ended(message: str) -> dict[str, Any]:
    return {"name": "c", "state": {"terminated": {"exitCode": 0, "message": message}}}


def a_fetching_pod(first: str, rest: str | None, job: str = JOB) -> dict[str, Any]:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "ours-fetch-0a1b2c3d",
        "uid": job,
        "controller": True,
    }
    then = (
        {"name": "rest", "state": {"waiting": {"reason": "PodInitializing"}}}
        if rest is None
        else ended(rest)
    )
    status = {"initContainerStatuses": [ended(first)], "containerStatuses": [then]}
    return {"metadata": {"name": "p", "ownerReferences": [owner]}, "status": status}


def test_the_messages_of_both_containers_are_one_text() -> None:
    assert left_by([a_fetching_pod("shardwright/1 con", "fig x")], JOB) == "shardwright/1 config x"


def test_a_first_container_that_has_failed_has_said_all() -> None:
    assert (
        left_by([a_fetching_pod("shardwright/1 problem []", None)], JOB)
        == "shardwright/1 problem []"
    )


def test_a_pod_that_somebody_else_has_labelled_so_says_nothing() -> None:
    assert left_by([a_fetching_pod("forged", "", job="other")], JOB) == ""
    assert (
        left_by([a_fetching_pod("forged", "", job="other"), a_fetching_pod("ours", "")], JOB)
        == "ours"
    )
    assert left_by([{"metadata": {"name": "p"}}], JOB) == ""
