"""An object store in the cluster: a real S3 server with the models in a bucket, which wants a key
and TLS.

The server is rclone's, which nodes of ours have beside the engine's streamer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.x509 import DNSName

from tests.kind import release, serving
from tests.kind.cluster import RUNTIME_CLASS, Cluster
from tests.kind.images import STREAMER_FOLDER
from tests.kind.serving import NAMESPACE
from tests.support.certificates import self_signed

NAME, PORT, BUCKET = release.STORE, 9000, "weights"
SECRET, AUTHORITY = "store-keys", "store-authority"
WRONG = "store-wrong-keys"
"""A Secret whose keys the server does not take."""

_SERVER = f"{NAME}.{NAMESPACE}.svc"
_KEYS = {"AWS_ACCESS_KEY_ID": "engine", "AWS_SECRET_ACCESS_KEY": "of-the-secret"}
_KINDS = (
    f"pod/{NAME}",
    f"service/{NAME}",
    *(f"secret/{name}" for name in (NAME, SECRET, WRONG)),
    f"configmap/{AUTHORITY}",
)


def weights(path: str, secret: str = SECRET) -> str:
    """What a user types to have weights read from it."""
    return (
        f"uri: s3://{BUCKET}/{path}, secretRef: {{name: {secret}}}, "
        f"objectStore: {{endpoint: 'https://{_SERVER}:{PORT}', region: eu-central-1, "
        f"caConfigMapRef: {{name: {AUTHORITY}}}, bufferGigabytes: 1}}"
    )


@contextmanager
def serving_models(cluster: Cluster) -> Iterator[None]:
    """Start it, and end it with all that it was given."""
    stop(cluster)  # of a run that was killed
    try:
        cluster.apply(*_objects(release.image(cluster)))
        cluster.kubectl(
            *("-n", NAMESPACE, "wait", f"pod/{NAME}"), *("--for=condition=Ready", "--timeout=120s")
        )
        yield
    finally:
        stop(cluster)


def stop(cluster: Cluster) -> None:
    """End it."""
    cluster.kubectl("-n", NAMESPACE, "delete", *_KINDS, "--ignore-not-found")


def requests(cluster: Cluster) -> list[str]:
    """What it was asked for so far."""
    return cluster.kubectl("-n", NAMESPACE, "logs", NAME).splitlines()


def _objects(image: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = (
            file.read_text() for file in self_signed(Path(folder), DNSName(_SERVER))
        )
    wrong = _KEYS | {"AWS_SECRET_ACCESS_KEY": "another"}
    service = {"selector": {"app": NAME}, "ports": [{"port": PORT}]}
    return [
        _secret(NAME, {"server.crt": certificate, "server.key": key}),
        _secret(SECRET, _KEYS),
        _secret(WRONG, wrong),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _named(AUTHORITY),
            "data": {"ca.crt": certificate},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": _named(NAME), "spec": service},
        _pod(image),
    ]


def _pod(image: str) -> dict[str, Any]:
    """The server, whose buckets are the folders in /buckets; the models' claim is one."""
    pod = serving.plain_pod(NAME, image)
    (container,) = pod["spec"]["containers"]
    container["command"] = [
        *(f"{STREAMER_FOLDER}/bin/rclone", "serve", "s3", "/buckets"),
        *("--addr", f":{PORT}", "--auth-key", ",".join(_KEYS.values())),
        *("--cert", "/tls/server.crt", "--key", "/tls/server.key", "-vv"),
    ]
    container["readinessProbe"] = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    container["volumeMounts"] = [
        {"name": "models", "mountPath": f"/buckets/{BUCKET}", "readOnly": True},
        {"name": "tls", "mountPath": "/tls", "readOnly": True},
    ]
    claim = {"claimName": "models", "readOnly": True}
    pod["spec"]["volumes"] = [
        {"name": "models", "persistentVolumeClaim": claim},
        {"name": "tls", "secret": {"secretName": NAME}},
    ]
    pod["spec"]["runtimeClassName"] = RUNTIME_CLASS
    return pod


def _secret(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _named(name),
        "stringData": dict(values),
    }


def _named(name: str) -> dict[str, str]:
    return {"name": name, "namespace": NAMESPACE}
