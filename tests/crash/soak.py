"""A random walk of users, cluster and faults on the real control plane, for as long as one likes;
see `make soak`.

It goes in rounds: several things happen, a fault of the API server among them; then all that is
broken is repaired, and within ``RESTS_WITHIN_SECONDS`` every model must serve and every law hold.
What the operator's process holds at rest may not grow.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from tests.crash.footprint import Footprint, footprint, leaks
from tests.crash.on_cluster import writes_an_object
from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import Exchange, Fault, FaultProxy
from tests.harness.waiting import wait_for
from tests.support import invariants
from tests.support.models import LARGE, SMALL, Models
from tests.support.operator import OperatorProcess
from tests.support.snapshots import snapshot, watching

PACE: Final = 10.0
"""How many times as fast the operator's clock runs: what waits for minutes is to happen many times
in an hour.
"""

NODES: Final = 6
MODELS: Final = ("one", "two", "three")
"""The first is of whole groups of two nodes, the others of one GPU: with two groups of each there
is room for all.
"""

RESTS_WITHIN_SECONDS: Final = 150.0
"""How long after the end of a round all must be well. Basis: assumed; after a fault of minutes work
goes on within 60 s, and a group that failed several times in a row waits up to 30 s at this pace.
"""

FRESH_SHARE: Final = 0.04
"""Share of the rounds in which the operator is killed: a process must live for long to be judged by
what it holds.
"""


@dataclass
class Walk:
    """One walk; ``happened`` counts what has happened, ``rests`` are seconds from the end of a
    round until all was well.
    """

    control_plane: ControlPlane
    operator: OperatorProcess
    proxy: FaultProxy
    models: Models
    nodes: list[str]
    rng: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    rests: list[float] = field(default_factory=list)
    samples: dict[int, list[Footprint]] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    most_written: int = 0

    def __post_init__(self) -> None:
        self.proxy.add(Fault("*", "*", None, 0, request=self._count, goes_on=True))

    def round(self) -> list[str]:
        """Let things happen and repair them; return what was wrong on the way, or is then."""
        self.writes.clear()
        with watching(self.control_plane, self.models.namespace) as moments:
            broken = self._lived()
        self.most_written = max([self.most_written, *self.writes.values()])
        return [*moments, *broken, *invariants.of_writes(self.writes.elements())]

    def _count(self, _fault: Fault, asked: Exchange) -> None:
        if writes_an_object(asked):
            self.writes[f"{asked.method} {asked.path}"] += 1

    def _lived(self) -> list[str]:
        kills = self.rng.random() < FRESH_SHARE
        with self._fault():
            for _ in range(self.rng.randint(2, 6)):
                self._happen(self.rng.choice(list(HAPPENINGS)))
                time.sleep(self.rng.uniform(0.0, 1.5))
            if kills:
                self._note("operator killed")
                self.operator.kill()
        self._mend()
        broken = self._wait_until_well()
        return broken or self._judge()

    def _happen(self, name: str) -> None:
        """Let something happen, as far as there is anything that it can happen to."""
        with suppress(ApiError, IndexError, AssertionError):
            HAPPENINGS[name](self)
            self._note(name)

    def _note(self, what: str) -> None:
        self.happened[what] += 1

    @contextmanager
    def _fault(self) -> Iterator[None]:
        """Let the API server fail in one way, or in none, while it lasts."""
        name = self.rng.choice(list(FAULTS))
        self._note(name)
        with FAULTS[name](self):
            yield

    def _mend(self) -> None:
        """Have everything as it should be: the operator runs, all nodes are there and answer,
        nobody is paused.
        """
        self._start_if_ended()
        for node in self.nodes:
            self.control_plane.nodes.uncordon(node)
            if not self.control_plane.nodes.is_ready(node):
                self.control_plane.nodes.set_ready(node)
        for model in self.models.all("ShardedModel"):
            self.models.change(model["metadata"]["name"], paused=None)
        for pod in self.models.pods():
            with suppress(ApiError):
                self.control_plane.pods.recover(self.models.namespace, pod["metadata"]["name"])

    def _start_if_ended(self) -> None:
        if self.operator.running() is None:
            self._note("operator started")
            self.ends.append(self.operator.logs()[-300:].splitlines()[-1])
            self.operator.start(timeout=90)

    def _wait_until_well(self) -> list[str]:
        began, seen = time.monotonic(), ["nothing was seen"]

        def well() -> bool:
            nonlocal seen
            self._start_if_ended()
            objects = snapshot(self.control_plane, self.models.namespace)
            seen = [
                *invariants.at_rest(objects),
                *invariants.of_lease(objects, {self.operator.identity}),
                *_not_serving(objects),
            ]
            return not seen

        try:
            wait_for(well, RESTS_WITHIN_SECONDS, "all to be well", interval=0.5)
        except AssertionError:
            return seen
        self.rests.append(time.monotonic() - began)
        return []

    def _judge(self) -> list[str]:
        pid = self.operator.running()
        if pid is None:
            return []
        samples = self.samples.setdefault(pid, [])
        samples.append(footprint(pid))
        return [f"leak of process {pid}: {what}" for what in leaks(samples)]


def _not_serving(objects: invariants.Snapshot) -> list[str]:
    """Return the models that are not well though everything is there for them."""
    return [
        f"{model['metadata']['name']}: {ready['reason']}: {ready['message']}"
        for model in objects
        if model["kind"] == "ShardedModel"
        for ready in model.get("status", {}).get("conditions", ())
        if ready["type"] == "Ready" and ready["reason"] not in ("Serving", "ScaledToZero")
    ]


# -- what users do


def create(walk: Walk) -> None:
    name = walk.rng.choice(MODELS)
    model, layout = (
        (LARGE, {"tensor": 8, "pipeline": 2})
        if name == MODELS[0]
        else (SMALL, {"tensor": 1, "pipeline": 1})
    )
    walk.models.create(name, model, replicas=walk.rng.randint(1, 2), parallelism=layout)


def delete(walk: Walk) -> None:
    walk.models.delete("ShardedModel", _any_model(walk))


def scale(walk: Walk) -> None:
    walk.models.change(_any_model(walk), replicas=walk.rng.randint(0, 2))


def roll(walk: Walk) -> None:
    variable = {"name": "NCCL_DEBUG", "value": walk.rng.choice(["INFO", "WARN", "TRACE"])}
    walk.models.change(
        _any_model(walk), engine={"env": [variable]}, rollout={"maxSurge": walk.rng.randint(0, 1)}
    )


def restart(walk: Walk) -> None:
    walk.models.annotate(_any_model(walk), restart=str(walk.rng.random()))


def pause(walk: Walk) -> None:
    walk.models.change(_any_model(walk), paused=True)


# -- what becomes of the cluster


def crash(walk: Walk) -> None:
    walk.control_plane.pods.crash(walk.models.namespace, _any(walk, "Pod"))


def end_pod(walk: Walk) -> None:
    walk.models.delete("Pod", _any(walk, "Pod"))


def delete_child(walk: Walk) -> None:
    kind = walk.rng.choice(
        ["StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap", "NetworkPolicy"]
    )
    walk.models.delete(kind, _any(walk, kind))


def scale_by_hand(walk: Walk) -> None:
    walk.models.patch(
        "StatefulSet", _any(walk, "StatefulSet"), {"spec": {"replicas": walk.rng.randint(0, 3)}}
    )


def cordon(walk: Walk) -> None:
    walk.control_plane.nodes.cordon(walk.rng.choice(walk.nodes))


def silence_node(walk: Walk) -> None:
    walk.control_plane.nodes.set_not_ready(walk.rng.choice(walk.nodes))


HAPPENINGS: Final[dict[str, Callable[[Walk], None]]] = {
    "model created": create,
    "model deleted": delete,
    "scaled": scale,
    "rolled": roll,
    "restart asked": restart,
    "paused": pause,
    "rank crashed": crash,
    "pod deleted": end_pod,
    "child deleted": delete_child,
    "scaled by hand": scale_by_hand,
    "node cordoned": cordon,
    "node silent": silence_node,
}


# -- faults of the API server


@contextmanager
def stop_process(walk: Walk) -> Iterator[None]:
    """Let the operator's process stand still for the round."""
    pid = walk.operator.running()
    if pid:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if pid:
            with suppress(ProcessLookupError):  # it was killed while it stood still
                os.kill(pid, signal.SIGCONT)


@contextmanager
def nothing(_walk: Walk) -> Iterator[None]:
    yield


def _codes(walk: Walk) -> Fault:
    """Refuse some writes, in one way."""
    code = walk.rng.choice([409, 429, 500, 503, 504])
    return walk.proxy.when(
        walk.rng.choice(["POST", "PATCH", "DELETE"]), "*", times=walk.rng.randint(1, 8)
    ).answer(code)


FAULTS: Final[dict[str, Callable[[Walk], AbstractContextManager[object]]]] = {
    "no fault": nothing,
    "no fault again": nothing,
    "process stopped": stop_process,
    "writes refused": _codes,
    "writes lost before": lambda walk: walk.proxy.when(
        "PATCH", "*", times=walk.rng.randint(1, 8)
    ).drop_before(),
    "writes lost after": lambda walk: walk.proxy.when(
        "POST", "*", times=walk.rng.randint(1, 8)
    ).drop_after(),
    "reads refused": lambda walk: walk.proxy.when("GET", "*", times=walk.rng.randint(1, 8)).answer(
        500
    ),
    "slow": lambda walk: walk.proxy.when("*", "*", times=30).slow(0.5),
    "connections cut": lambda walk: walk.proxy.cut(),
    "watches too old": lambda walk: walk.proxy.when("WATCH", "*", times=6).watch_error(410),
    "watches refused": lambda walk: walk.proxy.when("WATCH", "*", times=6).answer(503),
    "events twice": lambda walk: walk.proxy.when("WATCH", "*").duplicate(),
    "answers cut off": lambda walk: walk.proxy.when("GET", "*", times=4).truncate(100),
}


def _any_model(walk: Walk) -> str:
    return _any(walk, "ShardedModel")


def _any(walk: Walk, kind: str) -> str:
    names = [
        item["metadata"]["name"]
        for item in walk.models.all(kind)
        if item["metadata"]["name"] != "kube-root-ca.crt"
    ]
    return str(walk.rng.choice(names))
