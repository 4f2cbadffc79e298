"""Measure what the reconciles cost that bring a model up, without a control plane: milliseconds of
CPU and calls, by part of a reconcile.

    python -m benchmarks.bring_up [--models 30] [--nodes 600] [--profile PART]

The models are a third each of one GPU, one node and two nodes. Each is reconciled when it is new,
when its pods have been made, are bound, run, are ready, and then until there is nothing to do.
The API server is in memory and costs what it costs: its time, and the planner's, are left out.
``--profile`` prints where the CPU time of one part goes (``all`` for all of them).
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from time import thread_time
from typing import Any, Final, ParamSpec, TypeVar

from benchmarks.fleet import population
from shardwright.cluster.reports import Recorder
from shardwright.cluster.resources import NODES, PODS, SHARDED_MODELS, STATEFUL_SETS
from shardwright.cluster.writer import Writer
from shardwright.controller import reconciler
from shardwright.reconcile.disruption import planned_nodes
from tests.harness.api import Manifest
from tests.support.builders_operator import Key, Parts

P = ParamSpec("P")
R = TypeVar("R")

FIRST: Final = 9  # models before the clock starts
SHOWN: Final = 45  # functions of a profile
NOT_OURS: Final = frozenset({"outside", "api", "planner"})
STATES: Final = (
    {"phase": "Pending"},
    {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
)
"""What the status of a pod says one after another."""


class Spent:
    """CPU seconds and calls by part; what a part calls of another counts for the other alone."""

    def __init__(self, profiled: str) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.profiler = cProfile.Profile(thread_time)
        self._profiled = profiled
        self._parts = ["outside"]
        self._since = thread_time()

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count what is done within as this part's."""
        self.calls[part] += 1
        self._parts.append(part)
        self._switch(self._parts[-2])
        try:
            yield
        finally:
            self._parts.pop()
            self._switch(part)

    def _switch(self, ended: str) -> None:
        self.profiler.disable()
        now = thread_time()
        self.seconds[ended] += now - self._since
        self._since = now
        part = self._parts[-1]
        if part == self._profiled or (self._profiled == "all" and part not in NOT_OURS):
            self.profiler.enable()

    def wrapped(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that counts as a part."""

        def call(*arguments: P.args, **options: P.kwargs) -> R:
            with self.on(part):
                return function(*arguments, **options)

        return call

    def awaited(self, part: str, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Return a coroutine function that counts as a part."""

        async def call(*arguments: P.args, **options: P.kwargs) -> R:
            with self.on(part):
                return await function(*arguments, **options)

        return call


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument(
        "--profile",
        default="",
        metavar="PART",
        help="all, reconcile, read, next_step, write, status, metrics, events",
    )
    given = parser.parse_args(arguments)
    asyncio.run(measure(given.models, given.nodes, Spent(given.profile)))


async def measure(models: int, nodes: int, spent: Spent) -> None:
    """Bring models up one after another, and print what each part of that has cost."""
    parts = Parts()
    for node in population.nodes(nodes):
        parts.api.put(NODES, node)
    await parts.sync()
    manifests = population.models(FIRST + models)
    await bring_up(parts, manifests[:FIRST], Spent(""))  # what is worked out once for a process
    _count(parts, spent)
    await bring_up(parts, manifests[FIRST:], spent)
    for part, seconds in spent.seconds.most_common():
        print(
            f"{part:10} {1e3 * seconds / models:7.2f} ms a model  {spent.calls[part] / models:6.2f}"
            " calls a model"
        )
    total = sum(seconds for part, seconds in spent.seconds.items() if part not in NOT_OURS)
    print(f"{'together':10} {1e3 * total / models:7.2f} ms a model")
    if spent.profiler.getstats():
        pstats.Stats(spent.profiler).sort_stats("cumulative").print_stats(SHOWN)


def _count(parts: Parts, spent: Spent) -> None:
    """Have what the parts of a reconcile cost counted."""
    counted: tuple[tuple[Any, str, str], ...] = (
        *((parts.api, name, "api") for name in ("get", "create", "patch", "delete", "send")),
        *((parts.planner, name, "planner") for name in ("resolve", "answer")),
        (parts.snapshots, "read", "read"),
        (parts.metrics, "show", "metrics"),
        (Writer, "carry_out", "write"),
        (Recorder, "record", "events"),
        (reconciler, "write_status", "status"),
        (reconciler, "next_step", "next_step"),
    )
    for owner, name, part in counted:
        function = getattr(owner, name)
        setattr(
            owner,
            name,
            spent.awaited(part, function)
            if iscoroutinefunction(function)
            else spent.wrapped(part, function),
        )


async def bring_up(parts: Parts, models: list[Manifest], spent: Spent) -> None:
    """Have models planned, deployed and served, with a reconcile wherever the operator has one."""
    for model in models:
        stored = parts.api.put(SHARDED_MODELS, model)
        key = stored["metadata"]["namespace"], stored["metadata"]["name"]
        await reconciled(parts, key, spent)
        for state in STATES:
            _set_pods(parts, key, state)
            await reconciled(parts, key, spent)
        while parts.api.written:
            parts.api.written.clear()
            await reconciled(parts, key, spent)
        if parts.condition(key)["reason"] != "Serving":
            raise RuntimeError(f"{key} does not serve: {parts.condition(key)}")


async def reconciled(parts: Parts, key: Key, spent: Spent) -> None:
    parts.wait(1.0)
    with spent.on("reconcile"):
        await parts.reconcile(key)


def _set_pods(parts: Parts, key: Key, status: dict[str, Any]) -> None:
    """Have all pods of a model there with a status, on their nodes once they are bound."""
    found = [
        (place, item)
        for place, item in parts.api.objects.items()
        if place[0] == STATEFUL_SETS.plural
    ]
    groups = [
        item
        for (_, namespace, name), item in found
        if namespace == key[0] and name.startswith(f"{key[1]}-")
    ]
    for group in groups:
        template, name, nodes = (
            group["spec"]["template"],
            group["metadata"]["name"],
            sorted(planned_nodes(group)),
        )
        owner = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": name,
            "uid": group["metadata"]["uid"],
            "controller": True,
        }
        for rank in range(group["spec"]["replicas"]):
            own = f"{name}-{rank}"
            metadata = {
                "name": own,
                "namespace": key[0],
                "uid": f"pod-{own}",
                "ownerReferences": [owner],
            }
            metadata["labels"] = template["metadata"]["labels"]
            bound = {"nodeName": nodes[rank]} if "conditions" in status else {}
            parts.api.put(
                PODS, {"metadata": metadata, "spec": template["spec"] | bound, "status": status}
            )


if __name__ == "__main__":
    main(sys.argv[1:])
