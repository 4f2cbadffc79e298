"""Admission webhooks that do harm."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.harness.controlplane import ControlPlane

_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def dead_webhook(control_plane: ControlPlane, namespace: str, seconds: int) -> Iterator[None]:
    """Let whoever writes a ConfigMap of a namespace wait so long for an address that nobody has, and be refused then."""
    webhook = {
        "name": "dead.example.com",
        "clientConfig": {"url": "https://192.0.2.1:443/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": seconds,
        "admissionReviewVersions": ["v1"],
    }
    control_plane.api.create(_PATH, {"metadata": {"name": "dead"}, "webhooks": [webhook]})
    try:
        yield
    finally:
        control_plane.api.delete(f"{_PATH}/dead")
