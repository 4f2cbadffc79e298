"""Measure how much later the first plan of a tenant's model comes while another tenant creates a
thousand.

    python -m benchmarks.fairness [--flood 1000] [--plans 10] [--replicas 1]

On the control plane of the tests, with one operator and 32 nodes. A model that is only planned is
created, and the time until its status says so is taken: with nothing else going on, then one after
the other while the flood comes in and is worked through. Each model of the flood is a question of
its own; with ``--replicas 1000`` it is as dear as the catalogue has them, and finds no room.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rich.console import Console

from benchmarks.fleet.watching import Watch
from tests.harness import fleet
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.support.models import Models
from tests.support.operator import OperatorProcess, install_chart

NODE: Final = "h100-8x-dell-xe9680"
NODES: Final = 32
ADDED_SECONDS: Final = 1.0
"""The goal: the median of the first plans comes no more than this later."""
LIMIT_SECONDS: Final = 300
MODELS: Final = "/apis/shardwright.io/v1alpha1/namespaces/{}/shardedmodels"


class Planned:
    """Of which models of a namespace something is said, and when that was seen first: it comes of
    the first plan.
    """

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._changed = threading.Condition()
        self._at: dict[str, float] = {}
        self._watch = Watch(control_plane, MODELS.format(namespace), self._on_model)

    def close(self) -> None:
        """End the watch."""
        self._watch.close()

    def count(self) -> int:
        """Return of how many something is said."""
        return len(self._at)

    def wait(self, name: str) -> float:
        """Return when a model was seen to be planned.

        Raises:
            RuntimeError: it did not come to that within the limit.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._at, LIMIT_SECONDS):
                raise RuntimeError(f"{name} was not planned within {LIMIT_SECONDS} s")
        return self._at[name]

    def _on_model(self, item: Manifest) -> None:
        conditions: list[dict[str, Any]] = item.get("status", {}).get("conditions", [])
        if any(condition["type"] == "Ready" for condition in conditions):
            with self._changed:
                self._at.setdefault(item["metadata"]["name"], time.monotonic())
                self._changed.notify_all()


def first_plans(victim: Models, planned: Planned, inputs: int, names: list[str]) -> list[float]:
    """Create models one after the other; return how long the first plan of each took, in seconds,
    sorted.

    Each has another load, from so many input tokens on: a plan that is remembered would cost
    nothing.
    """
    found = []
    for name in names:
        began = time.monotonic()
        victim.create(name, mode="PlanOnly", workload={"inputTokens": inputs + len(found)})
        found.append(planned.wait(name) - began)
    return sorted(found)


def measure(console: Console, flood: int, plans: int, replicas: int) -> float:
    """Print what was measured; return the seconds that the flood adds at the median."""
    with ControlPlane.start() as control_plane:
        install_chart(control_plane)
        control_plane.nodes.create(fleet.make(NODE, NODES))
        victim, tenant = (
            Models(control_plane, control_plane.create_namespace(name))
            for name in ("victim", "tenant")
        )
        with OperatorProcess(control_plane), ThreadPoolExecutor(4) as pool:
            victim.create("warm", mode="PlanOnly")
            victim.wait_reason("warm", "PlanOnly", LIMIT_SECONDS)
            planned, flooded = (
                Planned(control_plane, victim.namespace),
                Planned(control_plane, tenant.namespace),
            )
            quiet = first_plans(
                victim, planned, 1000, [f"quiet-{number}" for number in range(plans)]
            )
            for number in range(flood):
                model = "deepseek-ai/DeepSeek-V3.2"
                asked = {"replicas": replicas, "workload": {"inputTokens": 1024 + number}}
                pool.submit(tenant.create, f"flood-{number}", model, **asked)
            flooded.wait("flood-0")
            loud, first = [], flooded.count()
            while flooded.count() < flood and len(loud) < plans:
                loud += first_plans(victim, planned, 2000 + len(loud), [f"loud-{len(loud)}"])
            last = flooded.count()
        planned.close()
        flooded.close()
    console.print(f"quiet: {_said(quiet)}")
    console.print(
        f"while {first} to {last} of {flood} models of the other tenant were planned: "
        f"{_said(sorted(loud))}"
    )
    return sorted(loud)[len(loud) // 2] - quiet[len(quiet) // 2]


def _said(seconds: list[float]) -> str:
    return (
        f"first plan after {seconds[len(seconds) // 2]:.2f} s at the median, {seconds[-1]:.2f} "
        f"s at most, of {len(seconds)}"
    )


def main() -> int:
    """Run the command; the exit code says whether the goal was reached."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--flood", type=int, default=1000, help="models of the other tenant (default: 1000)"
    )
    parser.add_argument(
        "--plans", type=int, default=10, help="first plans in each phase (default: 10)"
    )
    parser.add_argument(
        "--replicas",
        type=int,
        default=1,
        help="that each model of the other tenant asks for (default: 1)",
    )
    console, given = Console(), parser.parse_args()
    added = measure(console, given.flood, given.plans, given.replicas)
    console.print(f"{added:.2f} s more at the median; the goal is at most {ADDED_SECONDS:g} s")
    return 0 if added <= ADDED_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
