"""A control plane of its own, which other API servers may join, with KEDA beside it."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, IPAddress

from tests.harness import keda as harness
from tests.harness.controlplane import ControlPlane, FrontProxy, free_port
from tests.support.certificates import self_signed
from tests.support.operator import SYSTEM, OperatorProcess


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane whose API server passes requests on to others, as in most clusters."""
    shown = self_signed(tmp_path_factory.mktemp("proxy"), DNSName("front-proxy"))
    with ControlPlane.start(front_proxy=FrontProxy(*shown)) as running:
        yield running


@pytest.fixture(scope="session")
def keda(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Keda]:
    """KEDA, its metrics served by the API server."""
    folder = tmp_path_factory.mktemp("keda")
    _certificates(folder)
    with harness.Keda(control_plane, folder) as running:
        yield running


@pytest.fixture(scope="session")
def prometheus_port() -> int:
    """Where a test's Prometheus answers: the chart is told before there is one."""
    return free_port()


@pytest.fixture(scope="session")
def chart_options(prometheus_port: int) -> tuple[str, ...]:
    """Whom KEDA asks for the load of models, and what brings requests to them."""
    url = f"prometheus.url=http://127.0.0.1:{prometheus_port}"
    return ("--set", url, "--set", "router.image=registry.internal/router:1")


@pytest.fixture(scope="module")
def operator(
    chart: ControlPlane, keda: harness.Keda, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator with the settings that the chart delivers, where ScaledObjects are served."""
    del keda
    settings = f"/api/v1/namespaces/{SYSTEM}/configmaps/shardwright-settings"
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    file.write_text(chart.api.get(settings)["data"]["settings.json"])
    with OperatorProcess(chart, f"--settings-file={file}") as running:
        yield running


def _certificates(folder: Path) -> None:
    names = (DNSName(harness.METRICS), DNSName("localhost"), IPAddress(ip_address("127.0.0.1")))
    certificate, key = self_signed(folder, *names)
    key.rename(folder / "tls.key")
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    certificate.rename(folder / "tls.crt")
