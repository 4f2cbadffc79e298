"""`python -m tests.kind {up,test,test-full,demo,down}`: a kind cluster with the operator in it,
from the command line.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.harness.errors import HarnessError
from tests.kind import cache, cluster, programs, serving
from tests.kind.errors import UnavailableError
from tests.kind.grounds import Ground, ground
from tests.kind.shell import say

_UNAVAILABLE = 2
_RUNNING = ("chart", "watched", "mpi", "groups", "policies", "observed", "life")
_FULL = ("experts", "drafts", "store", "start", "replicas", "pipeline")
TESTS = {
    "test": ("test_parts.py", *(f"test_running_{part}.py" for part in _RUNNING)),
    "test-full": tuple(f"test_full_{part}.py" for part in _FULL),
}
"""In this order: what lets nodes have fewer GPUs comes last."""

_ON_OURS = ("test_running_mpi.py", "test_full_store.py")
"""What needs an image, or programs on the nodes, that are made for nodes of ours only."""

_DEMO = "workload: {concurrency: 1}\n  engine: {maxModelLen: 100000}"


def main() -> int:
    options = _parser().parse_args()
    try:
        return _run(options)
    except (HarnessError, AssertionError) as error:
        print(*(f"error: {line}" for line in said(error)), sep="\n", file=sys.stderr)  # noqa: T201
        return _UNAVAILABLE if isinstance(error, UnavailableError) else 1
    except KeyboardInterrupt:
        return 130


def said(error: BaseException) -> list[str]:
    """What went wrong, in order: ending may fail too, and would hide what was before it."""
    before = None if error.__suppress_context__ else error.__context__
    return [
        *(said(before) if isinstance(before, HarnessError | AssertionError) else []),
        str(error),
    ]


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kind", description="A kind cluster without a container registry."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "up": "start Docker and a cluster, install the operator, and leave them running",
        "test": "run the tests with a real engine; end whatever was not up before",
        "test-full": "run the long tests, up to 80 minutes; end whatever was not up before",
        "demo": "serve a model that the planner cuts over two nodes, and leave it running",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "--install",
            action="store_true",
            help="install missing Debian packages (CI=true does that too)",
        )
        command.add_argument(
            "--kubeconfig",
            type=Path,
            help="a cluster that is there already: only the chart is installed in it",
        )
        command.add_argument(
            "--operator-image", help="the operator's image in that cluster's registry, name:tag"
        )
    commands.choices["up"].add_argument(
        "--engine", action="store_true", help="with a real engine on the CPU (7 GB, once)"
    )
    commands.add_parser(
        "down", help="delete the cluster, end the Docker daemon, and leave nothing but the cache"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    chosen = ground(options)
    if options.command == "down":
        chosen.down()
        return 0
    if options.command in TESTS:
        return _test(chosen, TESTS[options.command])
    running = chosen.up(with_engine=options.command == "demo" or options.engine)
    chosen.keep()
    if options.command == "demo":
        _demo(running)
    print(f"export KUBECONFIG={running.kubeconfig} PATH={programs.programs()}:$PATH")  # noqa: T201
    return 0


def _test(chosen: Ground, files: Iterable[str]) -> int:
    """Run the tests on a cluster that is up then; what was not up before ends with them, however
    they end.
    """
    kept = chosen.is_kept()
    try:
        running = chosen.up(with_engine=True)
        mpi_image = chosen.mpi_image()
        if mpi_image is None:
            say(f"{', '.join(_ON_OURS)} are left out: they need nodes of ours")
        environment = {**os.environ, "SHARDWRIGHT_KIND_KUBECONFIG": str(running.kubeconfig)}
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-v",
                *(cache.HERE / file for file in files if mpi_image or file not in _ON_OURS),
            ],
            cwd=cache.ROOT,
            env=environment | ({"SHARDWRIGHT_KIND_MPI_IMAGE": mpi_image} if mpi_image else {}),
            check=False,
        ).returncode
    finally:
        if not kept:
            chosen.down()


def _demo(running: cluster.Cluster) -> None:
    """Show what eight lines become: a plan over two nodes, pods that are ready, an answer."""
    serving.prepare(running)
    print(serving.manifest("demo", _DEMO))  # noqa: T201
    served = serving.serve(running, "demo", _DEMO)
    for reason in served.status()["plan"]["reasons"]:
        print(f"  {reason}")  # noqa: T201
    print(  # noqa: T201
        running.kubectl("-n", serving.NAMESPACE, "get", "shardedmodels,pods", "-o", "wide")
    )
    print(  # noqa: T201
        f"asked for {serving.PROMPTS[0]}, it answers: {' '.join(served.ask(serving.PROMPTS[0]))}"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # what was started is ended then as well
    sys.exit(main())
