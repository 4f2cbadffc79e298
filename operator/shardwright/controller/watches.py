"""kopf watches and says which object changed; it decides, stores and writes nothing.

It runs on a thread and an event loop of its own: it takes over signals, and when it ends it cancels every
task of its loop, neither of which may happen to ours.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import kopf

from shardwright.cluster.access import Access
from shardwright.cluster.resources import DISRUPTION_BUDGETS, NODES, PODS, SERVICES, SHARDED_MODELS, STATEFUL_SETS, Resource

log = logging.getLogger(__name__)

MANAGED: Final = "app.kubernetes.io/managed-by=shardwright"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
WATCHED: Final = (SHARDED_MODELS, NODES, PODS, STATEFUL_SETS, SERVICES, DISRUPTION_BUDGETS)

OnEvent = Callable[[Resource, Mapping[str, Any], bool], None]
"""Told the resource, the object as the event has it, and whether it is gone."""


class Backoffs:
    """Pauses between attempts of a request, anew for every request."""

    def __iter__(self) -> Iterator[float]:
        return iter((0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0))


class Watches(threading.Thread):
    """All watches; ``on_event`` is called on this thread. When a watch cannot go on, the thread ends."""

    def __init__(self, access: Access, on_event: OnEvent, on_end: Callable[[], None], *, pods: bool) -> None:
        super().__init__(name="watches", daemon=True)
        self._access = access
        self._on_event = on_event
        self._on_end = on_end
        self._resources = tuple(resource for resource in WATCHED if pods or resource is not PODS)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stop.set()

    def run(self) -> None:
        """Watch until stopped."""
        try:
            asyncio.run(self._operate())
        except Exception:
            log.exception("watching has failed")
        finally:
            self._on_end()

    async def _operate(self) -> None:
        await kopf.operator(
            registry=self._registry(),
            settings=watch_settings(),
            clusterwide=True,
            standalone=True,
            stop_flag=self._stop,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for resource in self._resources:
            group, _, version = resource.api_version.rpartition("/")
            handler = self._handler(resource)
            kopf.on.event(group, version, resource.plural, registry=registry, id=resource.plural)(handler)
        return registry

    def _handler(self, resource: Resource) -> Callable[..., Any]:
        async def handle(event: Mapping[str, Any], **_: Any) -> None:
            self._on_event(resource, event["object"], event["type"] == "DELETED")

        return handle

    async def _login(self, **_kwargs: Any) -> kopf.ConnectionInfo:
        credentials = self._access.credentials()
        scheme, _, token = (credentials.authorization or "").partition(" ")
        return kopf.ConnectionInfo(
            server=credentials.server,
            ca_path=credentials.ca_file,
            insecure=credentials.insecure,
            scheme=scheme.capitalize() or None,
            token=token or None,
            certificate_path=credentials.certificate_file,
            private_key_path=credentials.key_file,
        )


def watch_settings() -> kopf.OperatorSettings:
    """Return kopf's settings; each answers something it does under faults."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # leadership is our Lease
    settings.scanning.disabled = True  # no cluster-wide rights on CRDs and namespaces
    settings.posting.enabled = False  # events are ours
    settings.persistence.finalizer = "shardwright.io/unused"
    settings.watching.inactivity_timeout = 70  # a silent connection is dead: bookmarks come every 60 s
    settings.watching.server_timeout = 300
    settings.watching.chunk_size = 500
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.queueing.error_delays = (1, 2, 5, 10, 30, 60)
    for resource in (STATEFUL_SETS, SERVICES, DISRUPTION_BUDGETS):
        settings.watching.label_selectors[resource.plural] = MANAGED
    settings.watching.field_selectors[PODS.plural] = UNFINISHED
    return settings
