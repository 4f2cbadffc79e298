"""Measure what starting costs: medians over fresh processes, and the least of them.

    python -m benchmarks.start [--runs 7]

Run it from the root of the repository. Commands are measured from the start of the interpreter to
its end, the operator until its first request reaches an API server that never answers. As where the
package is installed, its modules are compiled already: by a run that does not count. Other work on
the machine stretches the clock, and CPU as well where cores share their caches: what is measured
takes turns, so that all rows are stretched alike, and the first row is a loop that is always the
same.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

Measured = tuple[float, float]
"""Seconds of CPU, user and system, and on the clock."""

PLAN: Final = ("-f", "manifests/samples/llama-405b.yaml", "--nodes", "examples/fleet/nodes.yaml")
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "version": ("version",),
    "models": ("models",),
    "plan, text": ("plan", *PLAN),
    "plan, json": ("plan", *PLAN, "-o", "json"),
    "render": ("render", *PLAN),
    "crd": ("crd",),
}
"""What is shown to what is typed; ``plan`` is the first command of the README."""

BUDGETS: Final[Mapping[str, str]] = {
    "plan, text": "500 CPU",
    "operator, to its first request": "1,500 clock",
}
"""Milliseconds."""

FIRST_REQUEST_SECONDS: Final = 60.0
"""How long the operator is waited for. Basis: assumed, many times what it takes."""


def run(command: tuple[str, ...], environment: Mapping[str, str]) -> Measured:
    """Run a command to its end."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "shardwright.cli.main", *command],
        stdout=subprocess.DEVNULL,
        env=dict(environment),
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"shardwright {' '.join(command)} has ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begun


def reach(folder: Path, environment: Mapping[str, str]) -> Measured:
    """Start the operator, wait until its first request is there, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(FIRST_REQUEST_SECONDS)
        kubeconfig = write_kubeconfig(folder, server.getsockname()[1])
        begun = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "shardwright.controller",
            "--kubeconfig",
            str(kubeconfig),
            "--port=0",
            "--health-port=0",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(environment)
        )
        try:
            with server.accept()[0] as connection:
                connection.settimeout(FIRST_REQUEST_SECONDS)
                connection.recv(1)
                return cpu_of(process.pid), time.perf_counter() - begun
        finally:
            process.kill()
            process.wait()


def cpu_of(pid: int) -> float:
    """Return the CPU of a process that runs, in seconds, to the hundredth."""
    of_state = (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    )  # begins with field 3 of proc(5)
    return (int(of_state[11]) + int(of_state[12])) / os.sysconf("SC_CLK_TCK")


def write_kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig.json"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "clusters": [{"name": "local", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "local", "user": {"token": "none"}}],
    }
    path.write_text(json.dumps(content))
    return path


def count() -> Measured:
    """Sum three million numbers: the pace of the machine."""
    cpu, clock = time.process_time(), time.perf_counter()
    sum(index for index in range(3_000_000))
    return time.process_time() - cpu, time.perf_counter() - clock


def measured(
    cases: Mapping[str, Callable[[], Measured]], runs: int
) -> Mapping[str, list[Measured]]:
    """Return what each case took in all rounds but the first, which compiles."""
    rounds = [{name: once() for name, once in cases.items()} for _ in range(runs + 1)][1:]
    return {name: [each[name] for each in rounds] for name in cases}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=7, help="fresh processes for each figure (default: 7)"
    )
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        commands = {name: partial(run, command, environment) for name, command in COMMANDS.items()}
        operator = {"operator, to its first request": partial(reach, Path(folder), environment)}
        found = measured({"the sum of three million numbers": count, **commands, **operator}, runs)
    print("| what | CPU, ms | least | clock, ms | least | budget, ms |\n|---|---|---|---|---|---|")
    for name, rows in found.items():
        figures = (
            reduce(each) * 1000
            for each in zip(*rows, strict=True)
            for reduce in (statistics.median, min)
        )
        print(
            f"| {name} | {' | '.join(f'{figure:,.0f}' for figure in figures)} | "
            f"{BUDGETS.get(name, '')} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
