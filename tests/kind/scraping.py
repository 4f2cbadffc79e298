"""A Prometheus on this machine, with the rules by which the Prometheus operator finds targets for
the chart's monitors. It reads pods through the API server: no way leads to their network. What
discovery says of them is written down here, for Debian builds Prometheus without Kubernetes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
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
    """A Prometheus with the chart's rules, of the operator and of the groups in a namespace."""
    folder = Path(tempfile.mkdtemp(prefix="proxy-"))
    processes, port = Processes(folder), free_port()
    try:
        processes.start("proxy", cluster.command("proxy", f"--port={port}"))
        with Prometheus(*_jobs(cluster, namespace, f"127.0.0.1:{port}"), rules=RULES) as found:
            wait_for(lambda: found.ask("up == 1"), 60, "anything to be scraped", 0.5)
            yield found
    finally:
        processes.shutdown()


def _jobs(cluster: Cluster, namespace: str, proxy: str) -> list[dict[str, Any]]:
    values = ("metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true")
    monitors = release.rendered(cluster, "monitoring", *values)
    pods, service = (monitors[kind]["spec"] for kind in ("PodMonitor", "ServiceMonitor"))
    leaders = _kept("pod_label", pods, "pod_container_port_name", "podMetricsEndpoints")
    operators = _kept("service_label", service, "endpointslice_port_name", "endpoints")
    return [
        _job("engines", list(_pods(cluster, namespace)), proxy, *leaders),
        _job("operators", list(_backends(cluster)), proxy, *operators),
    ]


def _pods(cluster: Cluster, namespace: str) -> Iterator[dict[str, Any]]:
    """All ports of all pods, as discovery with the role pod says them."""
    for pod in cluster.get("pods", "-n", namespace)["items"]:
        metadata = pod["metadata"]
        known = _named("pod_label", metadata.get("labels", {}))
        known |= _named("pod_annotation", metadata.get("annotations", {}))
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                place = f"{pod['status']['podIP']}:{port['containerPort']}"
                labels = known | {"pod_container_port_name": port["name"]}
                yield _target(place, namespace, metadata["name"], labels)


def _backends(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """All pods behind Services of the operator's namespace, with the role endpointslice."""
    place = ("-n", release.NAMESPACE)
    services = {
        service["metadata"]["name"]: service["metadata"].get("labels", {})
        for service in cluster.get("services", *place)["items"]
    }
    for found in cluster.get("endpointslices", *place)["items"]:
        service = found["metadata"]["labels"]["kubernetes.io/service-name"]
        known = _named("service_label", services[service])
        for port, one in product(found["ports"], found["endpoints"]):
            address = f"{one['addresses'][0]}:{port['port']}"
            labels = known | {"endpointslice_port_name": port["name"]}
            yield _target(address, release.NAMESPACE, one["targetRef"]["name"], labels)


def _named(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    return {f"{kind}_{_as_label(key)}": value for key, value in given.items()}


def _as_label(key: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "_", key)


def _target(address: str, namespace: str, pod: str, labels: Mapping[str, str]) -> dict[str, Any]:
    known = {"namespace": namespace, "pod_name": pod, **labels}
    named = {_META + key: value for key, value in known.items()}
    return {"targets": [address], "labels": named}


def _kept(
    labels: str, spec: Mapping[str, Any], port: str, endpoints: str
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The only endpoint of a monitor, and the rules by which its targets are kept."""
    (endpoint,) = spec[endpoints]
    wanted = _named(labels, spec["selector"]["matchLabels"]) | {port: endpoint["port"]}
    return endpoint, [
        {"source_labels": [_META + key], "regex": re.escape(value), "action": "keep"}
        for key, value in wanted.items()
    ]


def _job(
    name: str,
    found: list[dict[str, Any]],
    proxy: str,
    endpoint: Mapping[str, Any],
    kept: list[dict[str, Any]],
) -> dict[str, Any]:
    """Targets that are kept of those found, with the labels of their monitor, by the proxy."""
    place = [f"{_META}namespace", f"{_META}pod_name", "__address__"]
    by_proxy = {
        "regex": r"(.+);(.+);[^:]+:(\d+)",
        "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics",
    }
    return {
        "job_name": name,
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": found,
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
