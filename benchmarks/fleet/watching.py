"""Watches of the benchmark itself: what came to be, and when."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from benchmarks.fleet.population import PROBES
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane

FULL: Final = "application/json"
PAUSE_SECONDS: Final = 0.1
"""Before a watch that has ended begins anew."""
METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class Watch(threading.Thread):
    """One watch from now on; ``on_object`` is called with each object that is there, comes or
    changes, on this thread.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        path: str,
        on_object: Callable[[Manifest], None],
        *,
        accept: str = FULL,
        **query: str,
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._server = urlsplit(control_plane.url)
        self._tls = ssl.create_default_context(cafile=str(control_plane.ca_file))
        self._connection: http.client.HTTPSConnection | None = None
        self._target = f"{path}?{urlencode({'watch': '1', 'timeoutSeconds': '36000', **query})}"
        self._headers = {"Authorization": f"Bearer {control_plane.admin_token}", "Accept": accept}
        self._on_object = on_object
        self._closed = threading.Event()
        self.start()

    def run(self) -> None:
        """Read events until closed; the API server ends a watch that falls behind: another one
        begins with all there is.
        """
        while not self._closed.is_set():
            with suppress(
                OSError, ValueError, AttributeError, http.client.HTTPException
            ):  # closed under our hands
                self._read()
            self._closed.wait(PAUSE_SECONDS)

    def close(self) -> None:
        """End it."""
        self._closed.set()
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def _read(self) -> None:
        self._connection = http.client.HTTPSConnection(
            str(self._server.hostname), self._server.port, context=self._tls
        )
        self._connection.request("GET", self._target, headers=self._headers)
        response = self._connection.getresponse()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self.name}: {response.status} {response.read().decode()}")
        for line in response:
            event = json.loads(line)
            if event["type"] in {"ADDED", "MODIFIED"}:
                self._on_object(event["object"])


class Snapshot:
    """What the watches have shown, as model to the monotonic second in which it was seen first."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._changed = threading.Condition()
        self.placed: dict[str, float] = {}  # has a StatefulSet
        self.ready: dict[str, float] = {}
        self.crashed: dict[str, float] = {}  # of the probes: a container has ended
        self.emptied: dict[str, float] = {}  # of the probes: the operator wrote `replicas: 0`
        self.sets: set[str] = set()
        self.reasons: dict[str, str] = {}
        managed = "app.kubernetes.io/managed-by=shardwright"
        watched: tuple[tuple[str, Callable[[Manifest], None], str], ...] = (
            ("/apis/apps/v1/statefulsets", self._on_set, METADATA),
            ("/apis/shardwright.io/v1alpha1/shardedmodels", self._on_model, FULL),
            (f"/apis/apps/v1/namespaces/{PROBES}/statefulsets", self._on_probe_set, FULL),
            (f"/api/v1/namespaces/{PROBES}/pods", self._on_probe_pod, FULL),
        )
        self._watches = [
            Watch(
                control_plane,
                path,
                handler,
                accept=accept,
                **({} if path.endswith("models") else {"labelSelector": managed}),
            )
            for path, handler, accept in watched
        ]

    def close(self) -> None:
        """End all watches."""
        for watch in self._watches:
            watch.close()

    def wait(self, reached: Callable[[], Any], seconds: float) -> bool:
        """Wait until something is so, no longer than this; return whether it is."""
        with self._changed:
            return bool(self._changed.wait_for(reached, seconds))

    def _note(self, where: dict[str, float], model: str) -> None:
        now = time.monotonic()
        with self._changed:
            where.setdefault(model, now)
            self._changed.notify_all()

    def _on_set(self, item: Manifest) -> None:
        self.sets.add(item["metadata"]["name"])
        self._note(self.placed, _owner(item))

    def _on_model(self, item: Manifest) -> None:
        name, status = item["metadata"]["name"], item.get("status", {})
        ready = next(
            (
                condition
                for condition in status.get("conditions", ())
                if condition["type"] == "Ready"
            ),
            None,
        )
        if ready:
            self.reasons[name] = ready["reason"]
        if ready and ready["status"] == "True":
            self._note(self.ready, name)
        else:
            self.ready.pop(name, None)

    def _on_probe_set(self, item: Manifest) -> None:
        if item["spec"]["replicas"] == 0:
            self._note(self.emptied, _owner(item))

    def _on_probe_pod(self, item: Manifest) -> None:
        states = item.get("status", {}).get("containerStatuses", ())
        if any(state["restartCount"] or "terminated" in state["state"] for state in states):
            self._note(self.crashed, item["metadata"]["annotations"]["shardwright.io/model-name"])


def _owner(item: Manifest) -> str:
    return str(item["metadata"]["ownerReferences"][0]["name"])
