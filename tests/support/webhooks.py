"""Admission webhooks that do harm."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.harness.controlplane import ControlPlane

_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


SILENT: Final = "https://192.0.2.1:443/"
"""An address that nobody has."""

DOWN: Final = "https://127.0.0.1:1/"
"""An address at which nobody listens: connections are refused at once."""


@contextmanager
def dead_webhook(
    control_plane: ControlPlane,
    namespace: str,
    seconds: int = 10,
    *,
    url: str = SILENT,
    plural: str = "configmaps",
) -> Iterator[None]:
    """Refuse whoever writes one of these objects of a namespace, after so many seconds where nobody
    answers at all.
    """
    webhook = {
        "name": "dead.example.com",
        "clientConfig": {"url": url},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [plural],
            }
        ],
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
