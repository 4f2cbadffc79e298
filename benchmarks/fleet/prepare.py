"""The cluster before the clock starts: nodes, other people's pods, the chart; all of it quiet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.fleet import population
from benchmarks.fleet.bench import Bench, Steps
from benchmarks.fleet.population import FOREIGN, PROBES
from benchmarks.fleet.sizes import Size
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART
from tests.support.operator import SYSTEM

CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
MODELS: Final = "/apis/shardwright.io/v1alpha1/shardedmodels"
LEASE_SECONDS: Final = 4 * 3600
"""Of the nodes' leases: none is renewed, and no node reports that nothing has changed, while
something is measured.
"""


@contextmanager
def prepared(size: Size, steps: Steps) -> Iterator[Bench]:
    """Yield the bench on a quiet cluster with all nodes and foreign pods, and the chart
    installed.
    """
    with ControlPlane.start(
        lease_duration_seconds=LEASE_SECONDS, unmanaged_namespaces=(SYSTEM, FOREIGN)
    ) as control_plane:
        control_plane.helm(
            "install",
            "shardwright",
            str(CHART),
            "--namespace",
            SYSTEM,
            "--create-namespace",
            *NAMED,
        )
        wait_for(lambda: control_plane.api.get(MODELS), 30, "the ShardedModels to be served")
        steps.say(f"control plane ready after {control_plane.start_seconds:.1f} s, chart installed")
        bench = Bench(control_plane, size, steps)
        try:
            _populate(bench)
            yield bench
        finally:
            bench.close()


def _populate(bench: Bench) -> None:
    api, size = bench.control_plane.api, bench.size
    began, before = time.monotonic(), bench.read()
    for name in (FOREIGN, PROBES, *(f"team-{index}" for index in range(population.TEAMS))):
        bench.control_plane.create_namespace(name)
    nodes = population.nodes(size.nodes)
    for name in CONTROLLERS:  # each would look at every write; afterwards they list what there is
        bench.control_plane.stop_component(name)
    bench.in_parallel(
        f"{size.nodes:,} nodes created",
        lambda node: api.create("/api/v1/nodes", node),
        nodes,
        size.nodes,
    )

    def create(pod: Manifest) -> None:
        path = f"/api/v1/namespaces/{FOREIGN}/pods"
        made = api.create(path, pod)
        api.replace(
            f"{path}/{pod['metadata']['name']}/status",
            made | {"status": population.running_status(pod)},
        )

    pods = population.foreign_pods(size.pods, nodes)
    bench.in_parallel(f"{size.pods:,} foreign pods created and running", create, pods, size.pods)
    for name in CONTROLLERS:
        bench.control_plane.start_component(name)
    bench.cluster_quiet(300)
    bench.figures["prepare.seconds"] = time.monotonic() - began
    bench.cpu["prepare"] = before.until(bench.read())
    bench.steps.say("the cluster is quiet")
