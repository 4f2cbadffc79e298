"""A Prometheus on this machine, with the jobs that the Prometheus operator makes of the chart's
monitors. It finds and reads pods through the API server: no way leads to their network.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.harness.controlplane import free_port
from tests.harness.processes import Processes
from tests.harness.prometheus import Prometheus
from tests.harness.waiting import wait_for
from tests.kind import release
from tests.kind.cluster import Cluster

RULES: Final = release.CHART / "files" / "rules.yaml"
_META: Final = "__meta_kubernetes_"


@contextmanager
def prometheus(cluster: Cluster, namespace: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the operator and the groups of a namespace, with the chart's rules."""
    folder = Path(tempfile.mkdtemp(prefix="proxy-"))
    processes, port = Processes(folder), free_port()
    try:
        processes.start("proxy", cluster.command("proxy", f"--port={port}"))
        with Prometheus(
            *_jobs(cluster, namespace, f"127.0.0.1:{port}"), rules=RULES
        ) as found:
            wait_for(lambda: found.ask("up == 1"), 60, "anything to be scraped", 0.5)
            yield found
    finally:
        processes.shutdown()


def _jobs(cluster: Cluster, namespace: str, proxy: str) -> list[dict[str, Any]]:
    values = ("metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true")
    monitors = release.rendered(cluster, "monitoring", *values)
    pods, service = (
        monitors[kind]["spec"] for kind in ("PodMonitor", "ServiceMonitor")
    )
    leaders = _kept("pod_label", pods, "pod_container_port_name", "podMetricsEndpoints")
    operators = _kept("service_label", service, "endpointslice_port_name", "endpoints")
    return [
        _job("pod", namespace, proxy, *leaders),
        _job("endpointslice", release.NAMESPACE, proxy, *operators),
    ]


def _kept(
    labels: str, spec: Mapping[str, Any], port: str, endpoints: str
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The only endpoint of a monitor, and the rules by which its targets are kept."""
    (endpoint,) = spec[endpoints]
    wanted = {
        f"{labels}_{re.sub('[^a-zA-Z0-9]', '_', key)}": value
        for key, value in spec["selector"]["matchLabels"].items()
    }
    return endpoint, [
        {"source_labels": [_META + key], "regex": re.escape(value), "action": "keep"}
        for key, value in {**wanted, port: endpoint["port"]}.items()
    ]


def _job(
    role: str,
    namespace: str,
    proxy: str,
    endpoint: Mapping[str, Any],
    kept: list[dict[str, Any]],
) -> dict[str, Any]:
    """Targets of a role that are kept, with the labels that a monitor gives them, by the proxy."""
    found = {
        "role": role,
        "api_server": f"http://{proxy}",
        "namespaces": {"names": [namespace]},
    }
    place = [f"{_META}namespace", f"{_META}pod_name", "__address__"]
    by_proxy = {
        "regex": r"(.+);(.+);[^:]+:(\d+)",
        "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics",
    }
    return {
        "job_name": role,
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [found],
        "relabel_configs": [
            *kept,
            {"source_labels": [f"{_META}namespace"], "target_label": "namespace"},
            {"source_labels": [f"{_META}pod_name"], "target_label": "pod"},
            *map(_relabeling, endpoint.get("relabelings", [])),
            {"source_labels": place, "target_label": "__metrics_path__", **by_proxy},
            {"target_label": "__address__", "replacement": proxy},
        ],
    }


def _relabeling(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule in the words of Prometheus: those of its operator are the same in another case."""
    return {
        re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value
        for key, value in rule.items()
    }
