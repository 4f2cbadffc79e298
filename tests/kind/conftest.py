"""The tests on the running kind cluster: `make kind-test`; elsewhere only those that need no cluster are collected."""

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
from tests.kind.shell import step

KUBECONFIG_VARIABLE = "SHARDWRIGHT_KIND_KUBECONFIG"
"""The cluster to test on; `make kind-test` names ours, and any other can be named."""

collect_ignore_glob = [] if KUBECONFIG_VARIABLE in os.environ else ["test_running_*.py"]

_NOTICED_SECONDS = 300
_ABSENT = "shardwright-kind/engine:absent"
_LINES = {"one": "workload: {concurrency: 1}", "tensor": "parallelism: {tensor: 2, pipeline: 1}"}


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
def models(kind: cluster.Cluster) -> cluster.Cluster:
    """The cluster with a namespace for models, their claim and a client in it."""
    serving.prepare(kind)
    return kind


@pytest.fixture(scope="session")
def single_pods(models: cluster.Cluster) -> Mapping[str, Facts]:
    """What was found of three groups of one pod: one process, two tensor ranks, and one process with two layers swapped.

    The first begins with a wrong path and the last with a wrong image: both are mended when their conditions say so.
    """
    one, tensor, swapped = (Served(models, name) for name in ("one", "tensor", "swapped"))
    began = time.monotonic()
    one.write(_LINES["one"], path="nowhere")
    swapped.write(_LINES["one"], path="swapped", further=(f"engine: {{image: '{_ABSENT}', version: {engine.VERSION}}}",))
    with step("breaking the image and the path, and waiting for the conditions", 60):
        image = wait_for(lambda: _shown(swapped, _ABSENT), _NOTICED_SECONDS, "the image in Ready", 1)
        image_seconds = time.monotonic() - began
        path = wait_for(lambda: _shown(one, "/models/nowhere"), _NOTICED_SECONDS, "the path in Ready", 1)
        path_seconds = time.monotonic() - began
    faults.seen.append(Fault("an image that does not exist", image, image_seconds, "serves once the image is mended"))
    faults.seen.append(Fault("a path without a model", path, path_seconds, "serves once the path is mended"))
    one.write(_LINES["one"])
    swapped.write(_LINES["one"], path="swapped", further=("engine: {}",))
    tensor.write(_LINES["tensor"])
    with step("starting three groups of one pod, four ranks", 150):
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
    """A request that is too long for the K/V of fewer than four GPUs, on nodes with two; deleted when everything is found."""
    del single_pods  # ran before: its workers count too
    served = serving.serve(models, "both", "workload: {concurrency: 1, maxModelLen: 100000}")
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


def _shown(served: Served, what: str) -> str:
    """Reason and cause as the resource shows them, once they name `what`."""
    ready, failure = served.condition(), served.failure()
    shown = f"{ready.get('reason')}: {ready.get('message')} {failure.get('reason', '')} {failure.get('message', '')}"
    assert ready.get("status") == "False", shown
    assert what in shown, shown
    return str(ready["reason"])
