"""Measure what the chart's admission policies cost a write of the operator: milliseconds, with them
and without.

    python -m benchmarks.policies [--writes 200]

Each write is a dry run of a StatefulSet, the object with the most rules. CPU time is that of the
API server.
"""

import argparse
import sys
import time
from statistics import median, quantiles

from benchmarks.start import cpu_of
from tests.harness.api import Api, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.operator import install_chart, operator_api
from tests.support.stored import objects_of, runnable, stored

NAMESPACE = "default"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
NOBODYS: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobodys"}}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writes", type=int, default=200)
    given = parser.parse_args(arguments)
    with ControlPlane.start() as control_plane:
        install_chart(control_plane)
        api = operator_api(control_plane)
        server = control_plane.running()["kube-apiserver"]
        measure("with policies", api, server, given.writes)
        control_plane.api.delete(BINDINGS)
        wait_for(lambda: stored(api, NOBODYS, NAMESPACE), 30, "the policies to be out of force")
        measure("without", api, server, given.writes)


def measure(what: str, api: Api, server: int, writes: int) -> None:
    """Print what a write takes, and what it costs the API server, whose process id this is."""
    group = next(
        item for item in objects_of(runnable()[0], NAMESPACE) if item["kind"] == "StatefulSet"
    )
    taken, cpu_before = [], cpu_of(server)
    for _ in range(writes):
        began = time.monotonic()
        stored(api, group, NAMESPACE)
        taken.append(1e3 * (time.monotonic() - began))
    cpu = 1e3 * (cpu_of(server) - cpu_before) / writes
    high = quantiles(taken, n=100)[98]
    print(
        f"{what:14} {median(taken):7.2f} ms a write, 99th percentile {high:7.2f} ms, {cpu:6.2f} "
        "ms of CPU",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
