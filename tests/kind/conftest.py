"""The tests on the running kind cluster: `make kind-test`; elsewhere only those that need no
cluster are collected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.waiting import wait_for
from tests.kind import cluster, engine, faults, programs, serving
from tests.kind.faults import Fault
from tests.kind.serving import Facts, Served
from tests.kind.shell import say, step

KUBECONFIG_VARIABLE = "SHARDWRIGHT_KIND_KUBECONFIG"
"""The cluster to test on; `make kind-test` names ours, and any other can be named."""

collect_ignore_glob = (
    [] if KUBECONFIG_VARIABLE in os.environ else ["test_running_*.py", "test_full_*.py"]
)

_NOTICED_SECONDS = 300
_TAIL = 3000  # characters of a failure
_ABSENT = "shardwright-kind/engine:absent"
_LINES = {"one": "workload: {concurrency: 1}", "tensor": "parallelism: {tensor: 2, pipeline: 1}"}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: the summary may be an hour away."""
    if report.failed:
        say(f"\n{report.nodeid} ({report.when}):\n{report.longreprtext[-_TAIL:]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of faults."""
    if faults.seen:
        terminalreporter.section("faults on the kind cluster")
    for line in faults.lines():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def kind() -> cluster.Cluster:
    """The running cluster, seen through kubectl."""
    return cluster.Cluster(Path(os.environ[KUBECONFIG_VARIABLE]), programs.programs())


@pytest.fixture(scope="session")
def models(kind: cluster.Cluster) -> Iterator[cluster.Cluster]:
    """The cluster with a namespace for models, their claim and a client in it, which go with the
    tests.
    """
    serving.prepare(kind)
    yield kind
    serving.clean(kind)


@pytest.fixture(scope="session")
def single_pods(models: cluster.Cluster) -> Mapping[str, Facts]:
    """What was found of three groups of one pod: one process, two tensor ranks, and one process
    with two layers swapped.

    The first begins with a wrong path and the last with a wrong image: both are fixed when their
    conditions say so.
    """
    one, tensor, swapped = (Served(models, name) for name in ("one", "tensor", "swapped"))
    began = time.monotonic()
    swapped.write(
        _LINES["one"],
        path="swapped",
        further=(f"engine: {{image: '{_ABSENT}', version: {engine.VERSION}}}",),
    )
    one.write(_LINES["one"], path="nowhere")
    tensor.write(_LINES["tensor"])
    with step(
        "starting three groups of one pod, one with a wrong path and one with a wrong image", 200
    ):
        _shown(one, "/models/nowhere", "a path without a model", began)
        one.write(_LINES["one"])
        _shown(swapped, _ABSENT, "an image that does not exist", began)
        swapped.write(_LINES["one"], path="swapped", further=("engine: {}",))
        for served in (one, swapped, tensor):
            served.wait_ready()
    found = {served.name: served.facts() for served in (one, tensor, swapped)}
    for served in (one, tensor, swapped):
        served.delete()
    return found


@pytest.fixture(scope="session")
def expected(single_pods: Mapping[str, Facts]) -> list[list[str]]:
    """What one process answers."""
    return single_pods["one"].answers


@pytest.fixture(scope="session")
def both(models: cluster.Cluster, single_pods: Mapping[str, Facts]) -> tuple[Served, Facts]:
    """A request that is too long for the K/V of fewer than four GPUs, on nodes with two; deleted
    when everything is found.
    """
    del single_pods  # ran before: its workers count too
    served = serving.serve(
        models, "both", "workload: {concurrency: 1}\n  engine: {maxModelLen: 100000}"
    )
    facts = served.facts()
    served.delete()
    return served, facts


@pytest.fixture(scope="session")
def pipeline(models: cluster.Cluster, both: tuple[Served, Facts]) -> Iterator[tuple[Served, Facts]]:
    """A request that is too long for the K/V of one GPU, on nodes with one; stays, to be broken."""
    del both
    with serving.single_gpu_nodes(models):
        served = serving.serve(models, "pipeline", serving.PIPELINE)
        yield served, served.facts()
        served.delete()


def _shown(served: Served, cause: str, what: str, began: float) -> None:
    """Wait until the resource names the cause of a fault; write the row of the table."""

    def shown() -> str:
        ready, failure = served.condition(), served.failure()
        said = f"{ready.get('reason')}: {ready.get('message')}"
        assert ready.get("status") == "False", said
        assert cause in said + failure.get("message", ""), said
        return f"{said}; last failure: exit code {failure['exitCode']}" if failure else said

    said = wait_for(shown, _NOTICED_SECONDS, f"{what} to be shown", 1)
    faults.seen.append(Fault(what, said, time.monotonic() - began, "serves once it is fixed"))
