"""Crash points on the real control plane: an act of a life, one of whose writes is lost or the last one of its operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from tests.crash.lives import ENGINES
from tests.crash.points import Fate, Point
from tests.crash.stored import stored
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import Exchange, Fault, FaultProxy
from tests.harness.waiting import wait_for
from tests.support import invariants
from tests.support.models import LARGE, Models
from tests.support.operator import OperatorProcess

NAME: Final = "large"
NODES: Final = 6
PACE: Final = 10.0
"""How many times as fast the operator's clock runs."""

RESTS_WITHIN_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 1.0
"""How long nothing is written before an act counts as over: a look follows half a second after a write."""

FATES: Final = (Fate.LOST_BEFORE, Fate.LOST_AFTER, Fate.KILLED_BEFORE, Fate.KILLED_AFTER)
_WRITES: Final = ("POST", "PATCH", "PUT", "DELETE")
_NOT_COUNTED: Final = ("/leases", "/events", "/selfsubjectaccessreviews")
_numbers = count(1)


@dataclass
class Stage:
    """A control plane with nodes, and an operator that reaches it by a proxy only."""

    control_plane: ControlPlane
    proxy: FaultProxy
    operator: OperatorProcess


@dataclass
class Striker:
    """Counts the writes of the operator and strikes at one of them; ``writes`` are all that it has seen, as "METHOD path"."""

    operator: OperatorProcess
    point: Point | None
    writes: list[str] = field(default_factory=list)
    last_at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def deal(self, _fault: Fault, asked: Exchange) -> None:
        """Deal with a request of the operator, as a fault of the proxy."""
        fate = self._fate(asked)
        if fate is None:
            asked.pass_on()
            return
        if fate in (Fate.LOST_AFTER, Fate.KILLED_AFTER):
            asked.forward().read()
        if fate in (Fate.KILLED_BEFORE, Fate.KILLED_AFTER):
            self.operator.kill()
        raise ConnectionResetError(fate)

    def _fate(self, asked: Exchange) -> Fate | None:
        if asked.method not in _WRITES or "dryRun=" in asked.target or any(part in asked.path for part in _NOT_COUNTED):
            return None
        with self._lock:
            number, self.last_at = len(self.writes), time.monotonic()
            self.writes.append(f"{asked.method} {asked.path}")
        return self.point.fate if self.point and self.point.number == number else None


@dataclass(frozen=True, slots=True)
class Act:
    """What happens to a model of so many groups (0: there is none yet), and how it is Ready in the end; "" where it is gone.

    ``anew``: none of its pods of before is left then.
    """

    replicas: int
    happens: Callable[[Models, ControlPlane], None]
    ends: str = "Serving"
    anew: bool = False


def _change(**spec: object) -> Callable[[Models, ControlPlane], None]:
    return lambda models, _: models.change(NAME, **spec)


def _silence_node(models: Models, control_plane: ControlPlane) -> None:
    control_plane.nodes.cordon(models.pods()[0]["spec"]["nodeName"])
    models.annotate(NAME, restart="elsewhere")


ACTS: Final[dict[str, Act]] = {
    "scale up": Act(1, _change(replicas=2)),
    "roll": Act(1, _change(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}), anew=True),
    "roll beside": Act(1, _change(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}, rollout={"maxSurge": 1}), anew=True),
    "restart": Act(1, lambda models, _: models.annotate(NAME, restart="once"), anew=True),
    "crash of a rank": Act(1, lambda models, control_plane: control_plane.pods.crash(models.namespace, f"{NAME}-0-1"), anew=True),
    "group deleted": Act(1, lambda models, _: models.delete("StatefulSet", f"{NAME}-0"), anew=True),
    "move": Act(1, _silence_node, anew=True),
    "re-plan": Act(1, _change(parallelism={"tensor": 8, "pipeline": 3}), anew=True),
    "pause": Act(1, _change(paused=True, replicas=2), ends="Paused"),
    "scale down": Act(2, _change(replicas=1)),
    "stop": Act(1, _change(replicas=0), ends="ScaledToZero"),
    "delete": Act(1, lambda models, _: models.delete("ShardedModel", NAME), ends=""),
}


def create(models: Models, engine: str, replicas: int) -> None:
    models.create(NAME, LARGE, engine=ENGINES[engine], replicas=replicas, parallelism={"tensor": 8, "pipeline": 2})


def play(stage: Stage, engine: str, act: str, point: Point | None) -> tuple[list[str], list[str]]:
    """Let an act happen in a namespace of its own; return its writes, and what is wrong in the end."""
    control_plane = stage.control_plane
    models = Models(control_plane, control_plane.create_namespace(f"crash-{next(_numbers)}"))
    known = ACTS.get(act, Act(0, lambda models, _: create(models, engine, 1)))
    if known.replicas:
        create(models, engine, known.replicas)
        _wait_until_over(stage, models, Act(known.replicas, known.happens), set(), Striker(stage.operator, None))
    before = models.uids()
    try:
        with _striking(stage, point) as striker:
            known.happens(models, control_plane)
            broken = _wait_until_over(stage, models, known, before, striker)
    finally:
        _clear(stage, models)
    return striker.writes, broken


@contextmanager
def _striking(stage: Stage, point: Point | None) -> Iterator[Striker]:
    striker = Striker(stage.operator, point)
    with stage.proxy.add(Fault("*", "*", None, 0, request=striker.deal)):
        yield striker


def _wait_until_over(stage: Stage, models: Models, act: Act, before: set[str], striker: Striker) -> list[str]:
    """Wait until all that an act was to bring about is so, and nothing is written any more; return what is wrong by then."""
    seen: list[str] = []

    def over() -> bool:
        nonlocal seen
        if stage.operator.running() is None:
            stage.operator.start(timeout=60)
        objects = stored(stage.control_plane, models.namespace)
        seen = [*invariants.at_rest(objects), *_unlike(objects, act, before)]
        return not seen and time.monotonic() > striker.last_at + QUIET_SECONDS

    try:
        wait_for(over, RESTS_WITHIN_SECONDS, "the act to be over", interval=0.2)
    except AssertionError:
        return seen or ["it writes on and on"]
    return []


def _unlike(objects: invariants.Snapshot, act: Act, before: set[str]) -> Iterator[str]:
    models = [item for item in objects if item["kind"] == "ShardedModel"]
    reasons = [_ready(model) for model in models]
    if reasons != ([act.ends] if act.ends else []):
        yield f"Ready: {reasons}, not {act.ends}"
    left = {item["metadata"]["uid"] for item in objects if item["kind"] == "Pod"} & before
    if left and (act.anew or not act.ends):
        yield f"{len(left)} pods of before are there"


def _ready(model: Manifest) -> str:
    conditions = model.get("status", {}).get("conditions", ())
    return next((str(item["reason"]) for item in conditions if item["type"] == "Ready"), "unknown")


def _clear(stage: Stage, models: Models) -> None:
    """Take everything away that the next act would miss."""
    nodes = stage.control_plane.nodes
    models.delete_all("ShardedModel")
    if stage.operator.running() is None:
        stage.operator.start(timeout=60)
    for name in nodes.names():
        nodes.uncordon(name)
    wait_for(partial(_is_empty, models), 60, "the pods to be gone")


def _is_empty(models: Models) -> bool:
    return models.pods() == []
