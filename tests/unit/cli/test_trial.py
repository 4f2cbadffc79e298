"""What the pod that measures shows, and what is concluded from it; pods are scripted."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from shardwright.cli import trial
from shardwright.cli.diagnosis import Enforcement
from shardwright.cli.trial import Measured, Trial, measure
from shardwright.cluster.client import Client
from shardwright.cluster.resources import NETWORK_POLICIES, Resource

Pod = dict[str, Any] | None


def a_probe(phase: str, *, ready: bool = True, **metadata: str) -> Pod:
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


THROUGH = a_probe("Running")
STOPPED = a_probe("Running", ready=False)


class Cluster:
    """Its pod is as scripted: before there is a policy, while it stands, and after it; the last of
    each for ever.
    """

    def __init__(self, *stages: list[Pod]) -> None:
        self.stages = [list(stage) for stage in stages]
        self.left: list[str] = []

    async def create(
        self, resource: Resource, namespace: str | None, body: dict[str, Any]
    ) -> dict[str, Any]:
        if resource is NETWORK_POLICIES:
            self.stages.pop(0)
        self.left.append(resource.kind)
        made = {"name": "p", "uid": "u", "namespace": namespace}
        return {"metadata": {**body["metadata"], **made}}

    async def delete(self, resource: Resource, *_: str, **__: Any) -> None:
        if resource is NETWORK_POLICIES:
            self.stages.pop(0)
        self.left.remove(resource.kind)

    async def get(self, *_: Any) -> Pod:
        stage = self.stages[0]
        return stage.pop(0) if len(stage) > 1 else stage[0]


def measured(cluster: Cluster) -> Measured:
    short = Trial(namespace="", image="i", start_seconds=0.05, settling_seconds=0.05)
    return asyncio.run(measure(cast("Client", cluster), short))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LOOK_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("meanwhile", "after", "verdict"),
    [
        ([THROUGH, STOPPED], [STOPPED, THROUGH], Enforcement.ENFORCED),
        ([THROUGH], [THROUGH], Enforcement.IGNORED),
    ],
)
def test_only_a_pod_that_runs_shows_whether_a_policy_stops_it(
    meanwhile: list[Pod], after: list[Pod], verdict: Enforcement
) -> None:
    cluster = Cluster([a_probe("Pending", ready=False), THROUGH], meanwhile, after)

    assert measured(cluster) == Measured(enforcement=verdict)
    assert cluster.left == []


@pytest.mark.parametrize(
    ("ended", "trouble"),
    [
        (a_probe("Failed"), "pod p is Failed"),
        (a_probe("Succeeded"), "pod p is Succeeded"),
        (a_probe("Unknown"), "pod p is Unknown"),
        (a_probe("Running", deletionTimestamp="now"), "pod p is Gone"),
        (None, "pod p is Gone"),
    ],
    ids=["evicted", "ended", "its node is lost", "being deleted", "gone"],
)
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_pod_that_ends_says_nothing_of_policies_whenever_it_ends(
    stage: int, ended: Pod, trouble: str
) -> None:
    stages: list[list[Pod]] = [[THROUGH], [THROUGH, STOPPED], [THROUGH]]
    stages[stage] = [STOPPED if stage == 2 else THROUGH, ended]
    if stage == 0:
        stages[0] = [ended]
    cluster = Cluster(*stages)

    assert measured(cluster) == Measured(enforcement=Enforcement.UNCLEAR, trouble=trouble)
    assert cluster.left == []


def test_a_pod_that_does_not_come_back_without_the_policy_says_nothing_of_it() -> None:
    cluster = Cluster([THROUGH], [STOPPED], [STOPPED])

    assert measured(cluster).enforcement is Enforcement.UNCLEAR
