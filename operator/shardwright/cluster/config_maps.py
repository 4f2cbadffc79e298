"""A watch on the metadata of all ConfigMaps: no content is transferred, and any of them may be referenced.

The API server sends ``PartialObjectMetadata`` only. Whoever is told reads the ConfigMap by name if it matters.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import urllib3

from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.resources import CONFIG_MAPS

METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_EVENTS: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
WATCH_SECONDS: Final = 300
SILENCE_SECONDS: Final = 90.0  # the server sends a bookmark every 60 s; longer silence is a dead connection
RECONNECT_SECONDS: Final = 2.0

OnChange = Callable[[Mapping[str, Any] | None], None]
"""Told the metadata of a ConfigMap that changed, or None: any may have changed while nobody watched."""


class ConfigMapWatch(threading.Thread):
    """Watches on a thread of its own until the process ends; ``on_change`` is called on that thread."""

    def __init__(self, client: Client, on_change: OnChange) -> None:
        super().__init__(name="configmaps", daemon=True)
        self._client = client
        self._on_change = on_change
        self._stop = threading.Event()

    def stop(self) -> None:
        """Do not connect again."""
        self._stop.set()

    def run(self) -> None:
        """Watch, and watch again from the present whenever the stream ends."""
        while not self._stop.is_set():
            with suppress(ApiError, urllib3.exceptions.HTTPError, OSError, ValueError, KeyError):
                self._watch_from(self._present())
            self._stop.wait(RECONNECT_SECONDS)

    def _present(self) -> str:
        query = (("limit", "1"),)
        response = self._client.open(_call("list", METADATA_ONLY, query), SILENCE_SECONDS)
        version: str = json.loads(response.read())["metadata"]["resourceVersion"]
        return version

    def _watch_from(self, resource_version: str) -> None:
        query = (
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_SECONDS)),
            ("resourceVersion", resource_version),
        )
        response = self._client.open(_call("watch", METADATA_EVENTS, query), SILENCE_SECONDS)
        self._on_change(None)
        for event in _lines(response):
            if self._stop.is_set() or event["type"] == "ERROR":
                return
            if event["type"] != "BOOKMARK":
                self._on_change(event["object"]["metadata"])


def _call(verb: str, accept: str, query: tuple[tuple[str, str], ...]) -> Call:
    return Call(verb=verb, resource=CONFIG_MAPS, path=CONFIG_MAPS.path(), method="GET", query=query, accept=accept)


def _lines(response: Any) -> Iterator[Mapping[str, Any]]:
    pending = b""
    for chunk in response.response.stream(amt=None, decode_content=True):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line)
