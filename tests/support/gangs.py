"""The same scenes for every scheduler that places groups all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.harness.api import Manifest
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models

HALF: Final[dict[str, Any]] = {"resources": {"cpu": "100"}}
"""CPUs of a pod, of 192 of its node: beside a pod of somebody else it has no place."""


def bound(models: Models) -> dict[str, int]:
    """Return how many pods of each group have a node."""
    found: dict[str, int] = {}
    for pod in models.pods():
        group = pod["metadata"].get("labels", {}).get("shardwright.io/group")
        if group is not None:
            found[group] = found.get(group, 0) + bool(pod["spec"].get("nodeName"))
    return found


def place_theirs(models: Models, node: str, priority: str = "") -> None:
    """Have a pod of somebody else take most CPUs of a node: the planner knows GPUs only."""
    requests = {"requests": {"cpu": "150"}}
    spec: Manifest = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "theirs", "image": "theirs", "resources": requests}],
    }
    if priority:
        spec["priorityClassName"] = priority
    models.post("Pod", {"metadata": {"name": "theirs"}, "spec": spec})
    wait_for(
        lambda: models.get("Pod", "theirs")["spec"].get("nodeName") == node,
        60,
        "somebody else's pod to be placed",
    )


def waits_for_a_taken_node(models: Models, node: str, placement: Manifest) -> None:
    """Check that a group of two waits as a whole and holds nothing while one of its nodes is taken,
    and is placed when it is free.
    """
    models.create("large", LARGE, placement=placement, mode="PlanOnly", pod=HALF)
    models.wait_reason("large", "PlanOnly")
    place_theirs(models, node)

    models.change("large", mode="Deploy")
    models.wait_reason("large", "Unschedulable", timeout=60)
    assert bound(models) == {"large-0": 0}

    models.delete("Pod", "theirs")
    models.wait_ready("large", timeout=90)
    assert bound(models) == {"large-0": 2}


def as_another_has_it(found: Manifest, name: str, renamed: Mapping[str, str]) -> Manifest:
    """Return an object as another tenant would have it, with other names in its spec."""
    text = json.dumps(found["spec"])
    for before, after in renamed.items():
        text = text.replace(before, after)
    return {"metadata": {"name": name}, "spec": json.loads(text)}


def gives_way_as_a_whole(models: Models) -> None:
    """Check that of the groups ``first-0``, which runs, and ``second-0``, which fits only without
    it, none is ever half placed: the second one waits, and is placed when the first has gone.
    """
    wait_for(lambda: bound(models) == {"first-0": 2, "second-0": 0}, 30, "the second group to wait")
    seen: list[dict[str, int]] = []

    def second_runs() -> bool:
        seen.append(bound(models))
        return seen[-1].get("second-0") == 2

    models.delete("ShardedModel", "first")
    wait_for(second_runs, 120, "the second group to be placed")
    assert [one for one in seen if one.get("second-0") and one.get("first-0")] == []
