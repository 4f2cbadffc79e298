"""Measure what planning costs: each figure is the median over fresh processes, CPU seconds of one
core.

    python -m benchmarks.speed [--runs 5]

Run it from the root of the repository. CPU time is what is compared with a budget, because other
work on the machine stretches the time on the clock; the clock is printed beside it.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import build_inventory, read_node
from shardwright.planning.planner import make_plan
from tests.support.builders_nodes import a_dumped_node, a_node
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    an_nvl72_pool,
    vllm_traits,
)

Measured = tuple[float, float]
"""Seconds of CPU and on the clock."""

POOLS: Final = 20

MODEL: Final = {
    "apiVersion": "shardwright.io/v1alpha1",
    "kind": "ShardedModel",
    "metadata": {"name": "llama-70b"},
    "spec": {"model": {"id": "meta-llama/Llama-3.1-70B-Instruct"}},
}


def timed(work: Callable[[], object]) -> Measured:
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - clock


def plan(model: str, inventory: Inventory, concurrency: int = 64) -> Measured:
    spec, traits, request = (a_model(model), vllm_traits(), a_request(concurrency=concurrency))
    return timed(lambda: make_plan(spec, inventory, request, traits))


def nodes_of(dump: str, count: int) -> list[dict[str, Any]]:
    node = a_dumped_node(dump)
    return [named(node, f"node-{index:05}") for index in range(count)]


def named(node: dict[str, Any], name: str) -> dict[str, Any]:
    renamed = copy.deepcopy(node)
    renamed["metadata"]["name"] = name
    return renamed


def read(dump: str) -> Measured:
    """Read 1,000 nodes several times; the tables are loaded before."""
    nodes = nodes_of(dump, 1000)
    read_node(nodes[0])
    passes = [timed(lambda: [read_node(node) for node in nodes]) for _ in range(5)]
    return statistics.median(cpu for cpu, _ in passes), statistics.median(
        clock for _, clock in passes
    )


def build(nodes: int) -> Measured:
    facts = [
        read_node(a_node(f"n-{index:05}", network_gbps=10 * (1 + index % POOLS)))
        for index in range(nodes)
    ]
    return timed(lambda: build_inventory([fact for fact in facts if fact], []))


def pools(nodes: int) -> Inventory:
    """Return 20 pools that differ in their network, with so many nodes together."""
    each = nodes // POOLS
    return an_inventory(
        *(
            a_pool(nodes=each, name=f"pool-{index:02}", network=a_network(100.0 + index))
            for index in range(POOLS)
        )
    )


CASES: Final[Mapping[str, tuple[str, Callable[[], Measured]]]] = {
    "dense-8b": (
        "plan Llama-8B on 64 H100",
        lambda: plan("llama-8b", an_inventory(a_pool(nodes=8))),
    ),
    "dense-70b": (
        "plan Llama-70B on 64 H100",
        lambda: plan("llama-70b", an_inventory(a_pool(nodes=8))),
    ),
    "dense-405b": (
        "plan Llama-405B on 64 H100",
        lambda: plan("llama-405b", an_inventory(a_pool(nodes=8))),
    ),
    "moe-30b": (
        "plan Qwen3-30B-A3B on 64 H200",
        lambda: plan("qwen3-30b-a3b", an_inventory(a_pool("H200-SXM-141GB", 8))),
    ),
    "moe-671b": (
        "plan DeepSeek-V3 on 64 H200",
        lambda: plan("deepseek-v3", an_inventory(a_pool("H200-SXM-141GB", 8))),
    ),
    "moe-rack": (
        "plan DeepSeek-V3 on 16 trays of GB200",
        lambda: plan("deepseek-v3", an_inventory(an_nvl72_pool(16))),
    ),
    "fleet-20": ("plan Llama-70B on 20 pools, 20 nodes", lambda: plan("llama-70b", pools(20))),
    "fleet-400": ("plan Llama-70B on 20 pools, 400 nodes", lambda: plan("llama-70b", pools(400))),
    "fleet-10000": (
        "plan Llama-70B on 20 pools, 10,000 nodes",
        lambda: plan("llama-70b", pools(10_000)),
    ),
    "read-120": ("read 1,000 nodes with 120 labels", lambda: read("h100-1x-mig-disabled")),
    "read-22": ("read 1,000 nodes with 22 labels", lambda: read("SYNTH-h100-8x-eks-p5")),
    "build": ("build the inventory of 10,000 nodes in 20 pools", lambda: build(10_000)),
}
"""Key to what is measured and how."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="fresh processes for each figure (default: 5)"
    )
    parser.add_argument(
        "--case", choices=CASES, help=argparse.SUPPRESS
    )  # what a fresh process measures
    options = parser.parse_args()
    if options.case:
        print(json.dumps(CASES[options.case][1]()))
        return 0
    print("| what | CPU, ms | clock, ms |\n|---|---|---|")
    pace(options.runs)
    found = {case: measure(case, options.runs) for case in CASES}
    for few in (20, 400):
        cpu, clock = (found["fleet-10000"][part] - found[f"fleet-{few}"][part] for part in (0, 1))
        print(f"| 10,000 nodes more than {few} | {cpu * 1000:,.0f} | {clock * 1000:,.0f} |")
    measure_command(options.runs)
    return 0


def pace(runs: int) -> None:
    """Measure a loop that is always the same, so that figures of two machines, or hours, can be
    compared.
    """
    rows = [timed(lambda: sum(index for index in range(3_000_000))) for _ in range(runs)]
    cpu, clock = (statistics.median(row[part] for row in rows) for part in (0, 1))
    print(
        f"| the sum of three million numbers | {cpu * 1000:,.0f} | {clock * 1000:,.0f} |",
        flush=True,
    )


def measure(case: str, runs: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks.speed", "--case", case]
    rows = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(runs)
    ]
    cpu, clock = (statistics.median(row[part] for row in rows) for part in (0, 1))
    print(f"| {CASES[case][0]} | {cpu * 1000:,.0f} | {clock * 1000:,.0f} |", flush=True)
    return cpu, clock


def measure_command(runs: int) -> None:
    """Measure a whole ``shardwright plan`` for 100 nodes, from the start of the interpreter to its
    end.

    As where the package is installed, its modules are compiled already: by a run that does not
    count.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nodes.json"
        path.write_text(
            json.dumps(
                {"apiVersion": "v1", "kind": "List", "items": nodes_of("SYNTH-h100-8x-eks-p5", 100)}
            )
        )
        model = Path(folder) / "model.json"
        model.write_text(json.dumps(MODEL))
        command = [
            sys.executable,
            "-m",
            "shardwright.cli.main",
            "plan",
            "-f",
            str(model),
            "--nodes",
            str(path),
        ]
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        rows = [run_once(command, os.environ | compiled) for _ in range(runs + 1)][1:]
    cpu, clock, mebibytes = (statistics.median(row[part] for row in rows) for part in range(3))
    print(
        f"| `shardwright plan` for 100 nodes, whole process, {mebibytes:.0f} MiB | "
        f"{cpu * 1000:,.0f}"
        f" | {clock * 1000:,.0f} |"
    )


def run_once(command: list[str], environment: Mapping[str, str]) -> tuple[float, float, float]:
    """Run a process in a child of its own, so that its peak memory is its own; return CPU, clock,
    MiB.
    """
    code = (
        "import json,resource,subprocess,sys,time\n"
        "t=time.perf_counter()\n"
        "subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL)\n"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([u.ru_utime+u.ru_stime,time.perf_counter()-t,u.ru_maxrss/1024]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    cpu, clock, mebibytes = json.loads(done.stdout)
    return cpu, clock, mebibytes


if __name__ == "__main__":
    sys.exit(main())
