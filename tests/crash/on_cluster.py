"""Crash points on the real control plane: lives, in each act of which something becomes of a write,
or of its operator there.

The acts of a life follow one another, so that a point costs no more than its act: nothing is made
and taken away for it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Final, TypeAlias

from tests.crash.lives import ENGINES
from tests.crash.points import Fate, Point
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import Exchange, Fault, FaultProxy, whole
from tests.harness.leases import LEASE
from tests.harness.waiting import wait_for
from tests.support import invariants
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess
from tests.support.snapshots import snapshot, watching

NAME: Final = "large"
NODES: Final = 6
PACE: Final = 10.0
"""How many times as fast the operator's clock runs."""

RESTS_WITHIN_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 1.0
"""How long nothing is written before an act counts as over: a reconcile follows half a second after a
write.
"""

FATES: Final[dict[Fate, int]] = {
    Fate.LOST_BEFORE: 4,
    Fate.LOST_AFTER: 4,
    Fate.KILLED_BEFORE: 4,
    Fate.KILLED_AFTER: 4,
    Fate.STOPPED_BEFORE: 1,
    Fate.STOPPED_AFTER: 1,
}
"""How often each is drawn beside the others. Basis: where the leader is stopped its Lease must run
out, which takes as long as several other points.
"""

TIMINGS: Final = (
    "--lease-duration-seconds=7",
    "--lease-renew-deadline-seconds=5",
    "--lease-retry-seconds=1",
)
TAKES_OVER_WITHIN_SECONDS: Final = 30.0
ENDS_WITHIN_SECONDS: Final = 30.0

_BEFORE: Final = (Fate.LOST_BEFORE, Fate.KILLED_BEFORE, Fate.STOPPED_BEFORE)
_KILLED: Final = (Fate.KILLED_BEFORE, Fate.KILLED_AFTER)
_STOPPED: Final = (Fate.STOPPED_BEFORE, Fate.STOPPED_AFTER)
_WRITES: Final = ("POST", "PATCH", "PUT", "DELETE")
_OF_ANYBODY: Final = ("/leases", "accessreviews", "/tokenreviews")
"""What is written by one that does not lead, too."""

_NOT_COUNTED: Final = (*_OF_ANYBODY, "/events")
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Seat:
    """An operator, and the proxy by which alone it reaches the API server."""

    operator: OperatorProcess
    proxy: FaultProxy


@dataclass
class Stage:
    """A control plane with nodes, an operator that leads, and one that is started where it is to
    take over.
    """

    control_plane: ControlPlane
    leader: Seat
    standby: Seat

    def change_over(self) -> None:
        """Have the standby be the leader from now on."""
        self.leader, self.standby = self.standby, self.leader


@contextmanager
def staged(control_plane: ControlPlane) -> Iterator[Stage]:
    """Start an operator on a control plane that has the chart and ``NODES`` nodes."""
    with ExitStack() as stack:
        first, second = (
            _seat(stack, control_plane, identity) for identity in ("operator-a", "operator-b")
        )
        first.operator.start()
        yield Stage(control_plane, first, second)


def _seat(stack: ExitStack, control_plane: ControlPlane, identity: str) -> Seat:
    proxy = stack.enter_context(FaultProxy(control_plane.url, control_plane.ca_file))
    operator = OperatorProcess(
        control_plane, *TIMINGS, identity=identity, server=proxy.url, pace=PACE
    )
    stack.push(operator)
    return Seat(operator, proxy)


@dataclass
class Striker:
    """Counts the writes of the operator and strikes at one of them; ``writes`` are all that it has
    seen, as "METHOD path".

    ``dealt`` says that it has met its point. Where it has ``stopped`` the operator, this one may
    write nothing once it is ``woken``; ``broken`` are the laws that were.
    """

    operator: OperatorProcess
    point: Point | None
    writes: list[str] = field(default_factory=list)
    last_at: float = field(default_factory=time.monotonic)
    dealt: bool = False
    stopped: bool = False
    woken: bool = False
    broken: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def deal(self, _fault: Fault, asked: Exchange) -> None:
        """Deal with a request of the operator, as a fault of the proxy."""
        if self.woken and _writes(asked, _OF_ANYBODY):
            self.broken.append(f"{_said(asked)}: written by the one that was stopped")
        fate = self._fate(asked)
        if fate is None:
            asked.pass_on()
            return
        self.dealt = True
        answer = None if fate in _BEFORE else whole(asked.forward())
        if fate in _KILLED:
            self.operator.kill()
        if fate in _STOPPED:
            self._stop()
        if not answer or fate is not Fate.STOPPED_AFTER:
            raise ConnectionResetError(fate)
        asked.answer(answer)

    def count(self, _fault: Fault, asked: Exchange) -> None:
        """Pass a request of the one that takes over on, and count it where it writes."""
        self._number(asked)
        asked.pass_on()

    def wake(self) -> None:
        """Let who was stopped go on."""
        self.stopped, self.woken = False, True
        self._signal(signal.SIGCONT)

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def _signal(self, number: signal.Signals) -> None:
        process = self.operator.running()
        assert process, self.operator.logs()[-3000:]
        os.kill(process, number)

    def _fate(self, asked: Exchange) -> Fate | None:
        number = self._number(asked)
        return self.point.fate if self.point and self.point.number == number else None

    def _number(self, asked: Exchange) -> int | None:
        """Count a write and return its number, None where it is none that counts."""
        if not writes_an_object(asked):
            return None
        with self._lock:
            number, self.last_at = len(self.writes), time.monotonic()
            self.writes.append(_said(asked))
        return number


def writes_an_object(asked: Exchange) -> bool:
    """Return whether a request stores something that models are made of."""
    return "dryRun=" not in asked.target and _writes(asked, _NOT_COUNTED)


def _writes(asked: Exchange, but: tuple[str, ...]) -> bool:
    return asked.method in _WRITES and not any(part in asked.path for part in but)


def _said(asked: Exchange) -> str:
    return f"{asked.method} {asked.path}"


class Pods(StrEnum):
    """What has become of the pods that there were before an act."""

    KEPT = "kept"
    SOME = "some are kept"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Act:
    """What happens to a model, how it is Ready in the end ("" where it is gone), and what becomes
    of its pods.

    ``undone`` is what has to be undone before the next act.
    """

    happens: Callable[[Models, ControlPlane], None]
    pods: Pods = Pods.GONE
    ends: str = "Serving"
    undone: Callable[[ControlPlane], None] = lambda _: None


def _change(**spec: object) -> Callable[[Models, ControlPlane], None]:
    return lambda models, _: models.change(NAME, **spec)


def _roll(value: str, **rollout: int) -> Act:
    return Act(_change(engine={"env": [{"name": "NCCL_DEBUG", "value": value}]}, rollout=rollout))


def _crash(models: Models, control_plane: ControlPlane) -> None:
    control_plane.pods.crash(models.namespace, models.pods()[-1]["metadata"]["name"])


def _move(models: Models, control_plane: ControlPlane) -> None:
    control_plane.nodes.cordon(models.pods()[0]["spec"]["nodeName"])
    models.annotate(NAME, restart="elsewhere")


def _uncordon(control_plane: ControlPlane) -> None:
    for name in control_plane.nodes.names():
        control_plane.nodes.uncordon(name)


CREATE: Final = "create"
LIFE: Final[dict[str, Act]] = {
    "restart": Act(lambda models, _: models.annotate(NAME, restart="once")),
    "crash of a rank": Act(_crash),
    "roll": _roll("INFO"),
    "scale up": Act(_change(replicas=2), Pods.KEPT),
    "scale down": Act(_change(replicas=1), Pods.SOME),
    "roll beside": _roll("WARN", maxSurge=1),
    "group deleted": Act(
        lambda models, _: models.delete(
            "StatefulSet", models.all("StatefulSet")[0]["metadata"]["name"]
        )
    ),
    "move": Act(_move, undone=_uncordon),
    "re-plan": Act(_change(parallelism={"tensor": 8, "pipeline": 3})),
    "pause": Act(_change(paused=True, replicas=2), Pods.KEPT, ends="Paused"),
    "resume": Act(_change(paused=False, replicas=1), Pods.KEPT),
    "stop": Act(_change(replicas=0), ends="ScaledToZero"),
    "start again": Act(_change(replicas=1), Pods.KEPT),
    "delete": Act(lambda models, _: models.delete("ShardedModel", NAME), ends=""),
}
"""The life of a model of one group of two nodes, once it is made; each act begins where the one
before has come to rest.
"""


LEAST_WRITES: Final[dict[str, int]] = {
    "create": 12,
    "restart": 7,
    "crash of a rank": 7,
    "roll": 10,
    "scale up": 10,
    "scale down": 7,
    "roll beside": 10,
    "group deleted": 6,
    "move": 9,
    "re-plan": 13,
    "pause": 1,
    "resume": 1,
    "stop": 4,
    "start again": 6,
    "delete": 0,
}
"""Writes that an act has at least, of which points are drawn. Basis: one less than was counted in
two lives of each engine; how many statuses are written on the way differs.
"""

PointOf: TypeAlias = Callable[[str], Point | None]
"""Returns the point of an act."""


def drawn(rng: random.Random, fates: Mapping[Fate, int], act: str) -> Point | None:
    """Draw a point of an act, with a fate of these by their weights; None where it has none."""
    if not LEAST_WRITES[act]:
        return None
    (fate,) = rng.choices(list(fates), list(fates.values()))
    return Point(rng.randrange(LEAST_WRITES[act]), fate)


@dataclass(frozen=True, slots=True)
class Played:
    """An act of a life as it went: its point, all its writes, what is wrong in the end, its
    seconds, whether it was struck.
    """

    engine: str
    act: str
    point: Point | None
    writes: tuple[str, ...]
    broken: tuple[str, ...]
    seconds: float
    struck: bool

    def __str__(self) -> str:
        if self.point is None:
            return f"{self.engine}, {self.act}, nothing struck"
        where = (
            self.writes[self.point.number] if self.struck else f"met no write {self.point.number}"
        )
        return f"{self.engine}, {self.act}, {self.point.fate}: {where}"


def live(stage: Stage, engine: str, point_of: PointOf) -> Generator[Played]:
    """Play a life in a namespace of its own, each act struck at a point, and end it where something
    is wrong.
    """
    models = Models(
        stage.control_plane, stage.control_plane.create_namespace(f"crash-{next(_numbers)}")
    )
    spec = {"engine": ENGINES[engine], "replicas": 1, "parallelism": {"tensor": 8, "pipeline": 2}}
    try:
        for name, act in {
            CREATE: Act(lambda models, _: models.create(NAME, LARGE, **spec)),
            **LIFE,
        }.items():
            played = _play(stage, models, engine, name, act, point_of(name))
            yield played
            if played.broken:
                return
            act.undone(stage.control_plane)
    finally:
        _clear(stage, models)


def _play(
    stage: Stage, models: Models, engine: str, name: str, act: Act, point: Point | None
) -> Played:
    before, began = models.uids(), time.monotonic()
    watch = watching(stage.control_plane, models.namespace)
    with watch as moments, _striking(stage, point) as striker:
        act.happens(models, stage.control_plane)
        broken = _wait_until_over(stage, models, act, before, striker)
    return Played(
        engine,
        name,
        point,
        tuple(striker.writes),
        (*broken, *moments, *striker.broken),
        time.monotonic() - began,
        striker.dealt,
    )


@contextmanager
def _striking(stage: Stage, point: Point | None) -> Iterator[Striker]:
    striker, leader, standby = (Striker(stage.leader.operator, point), stage.leader, stage.standby)
    if point and point.fate in _STOPPED:
        wait_for(
            leader.operator.leads, TAKES_OVER_WITHIN_SECONDS, "the leader to lead"
        )  # or the standby would be it
        standby.operator.start(timeout=60)
    with _all_of(leader.proxy, striker.deal), _all_of(standby.proxy, striker.count):
        yield striker
    stage.standby.operator.kill()


def _all_of(proxy: FaultProxy, deal: Callable[[Fault, Exchange], None]) -> Fault:
    return proxy.add(Fault("*", "*", None, 0, request=deal))


def _wait_until_over(
    stage: Stage, models: Models, act: Act, before: set[str], striker: Striker
) -> list[str]:
    """Wait until all that an act was to bring about is so, and nothing is written any more; return
    what is wrong by then.
    """
    seen: list[str] = []

    def over() -> bool:
        nonlocal seen
        if striker.stopped:
            _take_over(stage, striker)
        _keep_running(stage)
        objects = snapshot(stage.control_plane, models.namespace)
        seen = [*invariants.at_rest(objects), *_unlike(objects, act, before)]
        return not seen and time.monotonic() > striker.last_at + QUIET_SECONDS

    try:
        wait_for(over, RESTS_WITHIN_SECONDS, "the act to be over", interval=0.2)
    except AssertionError:
        return seen or ["it writes on and on"]
    return []


def _take_over(stage: Stage, striker: Striker) -> None:
    """Wait until another one leads, and until the one that was stopped has woken up and ended."""
    wait_for(stage.standby.operator.leads, TAKES_OVER_WITHIN_SECONDS, "the standby to lead")
    striker.wake()
    wait_for(
        lambda: striker.operator.running() is None,
        ENDS_WITHIN_SECONDS,
        "the one that was stopped to end",
    )
    stage.change_over()
    striker.broken += invariants.of_lease(
        [stage.control_plane.api.get(LEASE)], [stage.leader.operator.identity]
    )


def _keep_running(stage: Stage) -> None:
    if stage.leader.operator.running() is None:
        stage.leader.operator.start(timeout=60)


def _unlike(objects: invariants.Snapshot, act: Act, before: set[str]) -> Iterator[str]:
    models = [item for item in objects if item["kind"] == "ShardedModel"]
    reasons = [_ready(model) for model in models]
    if reasons != ([act.ends] if act.ends else []):
        yield f"Ready: {reasons}, not {act.ends}"
    kept = {item["metadata"]["uid"] for item in objects if item["kind"] == "Pod"} & before
    if kept and act.pods is Pods.GONE:
        yield f"{len(kept)} pods of before are there"
    if kept != before and act.pods is Pods.KEPT:
        yield f"{len(before - kept)} pods of before are gone"


def _ready(model: Manifest) -> str:
    conditions = model.get("status", {}).get("conditions", ())
    return next((str(item["reason"]) for item in conditions if item["type"] == "Ready"), "unknown")


def _clear(stage: Stage, models: Models) -> None:
    """Take everything away that the next act would miss."""
    models.delete_all("ShardedModel")
    _keep_running(stage)
    _uncordon(stage.control_plane)
    wait_for(partial(_is_empty, models), 60, "the pods to be gone")


def _is_empty(models: Models) -> bool:
    return models.pods() == []
