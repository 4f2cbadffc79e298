"""kopf watches ShardedModels and says which has changed; it decides, stores and writes nothing.

It runs on a thread and an event loop of its own: it takes over signals and, when it ends, cancels
every task of its loop. An ERROR in its watch, a load balancer's page or refused credentials end it;
none says anything of the objects, so it is restarted after a pause. It looks for served kinds once
and would wait for ever for a missing one, so that is asked first. It gets no more of an object than
is kept. Our own readers (``cluster.reader``) read everything else, as kopf keeps
objects whose deletion it missed.

kopf's connections to the API server, which pass on only the kept part of each ShardedModel.

kopf decodes an answer as a whole and holds each object while its handlers run. An inline config or
managed fields may be 1.5 MB, thirty times as much as Python values. So one object at a time is
decoded before kopf sees it, without what is not kept (``cluster.sources``).
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import chain, repeat
from time import monotonic
from typing import Any, Final

import aiohttp
import kopf

from shardwright.cluster.access import Access
from shardwright.cluster.client import Call, Client
from shardwright.cluster.json_stream import (
    BrokenError,
    Lines,
    ListDocument,
    Unreadable,
    metadata_of,
)
from shardwright.cluster.resources import DISCOVERY, SHARDED_MODELS
from shardwright.cluster.sources import project_model
from shardwright.cluster.transport import pieces
from shardwright.rendering.bundle import KubernetesObject

PAGE: Final = 10
"""Objects of a page of a LIST, which aiohttp has in memory as it arrives: 15 MiB at most, as etcd
takes 1.5 MiB of one.
"""


class KeptAnswer(aiohttp.ClientResponse):
    """A response whose LIST or watch events hold only the kept part of ShardedModels."""

    async def start(self, connection: Any) -> "KeptAnswer":
        """Start to read the response."""
        await super().start(connection)
        if self._is_of_models() and "watch" in self.url.query:
            # kopf reads the stream of a watch by itself, so it is the stream that is replaced.
            vars(self)["content"] = _KeptEvents(self.content)
        return self

    async def json(self, **options: Any) -> Any:
        """Return the content of the response.

        Raises:
            BrokenError: it should be a LIST, and is not.
        """
        return (
            _kept_list(await self.read()) if self._is_of_models() else await super().json(**options)
        )

    def _is_of_models(self) -> bool:
        return self.status == HTTPStatus.OK and self.url.path.endswith(f"/{SHARDED_MODELS.plural}")


class _KeptEvents:
    """The body of a watch as kopf reads it: one event a line."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield each event as soon as it has arrived."""
        lines = Lines()
        async for chunk in self._content.iter_chunked(size):
            for line in _kept_events(lines.feed(chunk)):
                yield line
        lines.end()


class Logins:
    """The sessions of one run of kopf, which asks for another if one is refused."""

    def __init__(self) -> None:
        self._given: kopf.ConnectionInfo | None = None

    def session(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession | None:
        """Return a session for a server and credentials, None for those last given: refused."""
        # None tells kopf that there is nothing else to try; the same credentials again would be
        # refused again, at once and without end.
        if info == self._given:
            return None
        self._given = info
        # No limit: each watched namespace holds a connection for as long as it is watched.
        connector = aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context())
        made = aiohttp.ClientSession(
            connector=connector, headers=info.as_http_headers(), response_class=KeptAnswer
        )
        return kopf.AiohttpSession(server=info.server, aiohttp_session=made)


def _kept_list(text: bytes) -> dict[str, Any]:
    document = ListDocument(pieces(text))
    items = [
        project_model(item)
        for item in document.items()
        # Left out: one object that nobody can decode must not end the LIST of all the others (ADR
        # 9).
        if not isinstance(item, Unreadable)
    ]
    if not metadata_of(document.fields).get("resourceVersion"):
        raise BrokenError("this is no LIST")
    return {**document.fields, "items": items}


def _kept_events(events: Iterable[Any]) -> Iterable[bytes]:
    for event in events:
        if isinstance(event, Unreadable):
            continue
        content = event.get("object") if isinstance(event, Mapping) else None
        if content is None:
            raise BrokenError("a line is no event")
        # An ERROR holds a Status, which kopf needs whole: by its code it lists anew.
        kept = content if event["type"] == "ERROR" else project_model(content)
        yield json.dumps({"type": event["type"], "object": kept}).encode() + b"\n"


log = logging.getLogger(__name__)

PROVEN_SECONDS: Final = 60.0
"""How long a watch must stand for its end to count as the first failure: longer than the longest
pause. Basis: assumed.
"""

ASK_SECONDS: Final = 30.0  # as kopf's own requests have

OnEvent = Callable[[KubernetesObject, bool], None]
"""Told what is kept of a ShardedModel as the event has it, and whether it is gone."""


class Backoffs:
    """Pauses between attempts, anew for each request, without end: an absent server comes back."""

    def __iter__(self) -> Iterator[float]:
        return chain((0.5, 1.0, 2.0, 4.0, 8.0, 16.0), repeat(30.0))


class NothingKept(kopf.DiffBaseStorage):
    """The state kopf compares an object with: none, as no handler of ours needs a copy."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[object] | None = None
    ) -> kopf.BodyEssence:
        """Return no field of an object."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> None:
        """Return nothing."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class Watches(threading.Thread):
    """The watch, restarted until :meth:`stop`; ``on_event`` is called on this thread."""

    def __init__(
        self,
        client: Client,
        access: Access,
        on_event: OnEvent,
        pauses: Iterable[float] | None = None,
        namespaces: Sequence[str] = (),
    ) -> None:
        """``client`` asks for the served kinds; ``pauses`` between attempts are in seconds.

        ``namespaces`` are watched one by one; empty: all at once.
        """
        super().__init__(name="watches", daemon=True)
        self._client = client
        self._access = access
        self._on_event = on_event
        self._pauses = pauses or Backoffs()
        self._namespaces = namespaces
        self._stopping = threading.Event()
        self._end: Callable[[], object] = lambda: None

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()
        with suppress(RuntimeError):  # its loop has ended by itself
            self._end()

    def run(self) -> None:
        """Watch until stopped."""
        pauses = iter(self._pauses)
        while not self._stopping.is_set():
            began = monotonic()
            # The API server is asked for the kind first: kopf looks for served kinds once, and
            # would wait for ever.
            why = self._watch()
            if self._stopping.is_set():
                return
            # A watch that has stood for long says that the cause of the row before it is gone.
            if monotonic() - began >= PROVEN_SECONDS:
                pauses = iter(self._pauses)
            pause = next(pauses)
            log.error(
                "the watch of ShardedModels has ended and begins anew: %s",
                why,
                extra={"seconds": pause},
            )
            self._stopping.wait(pause)

    def _watch(self) -> str:
        try:
            self._client.ask(
                Call(verb="get", resource=DISCOVERY, path=SHARDED_MODELS.prefix, method="GET"),
                ASK_SECONDS,
            )
            asyncio.run(self._operate())
        except Exception as error:  # noqa: BLE001  # whatever ends it, what there is has not changed by it
            return f"{type(error).__name__}: {error}"
        return "nobody has said why"

    async def _operate(self) -> None:
        # Not the event of threading: kopf waits for that in a thread of its own, for which the loop
        # then waits however it ends.
        end = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, end.set)
        if self._stopping.is_set():
            return
        await kopf.operator(
            registry=self._registry(),
            settings=watch_settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            # No peering: leadership is by our Lease, and kopf's peering would pause the watch of a
            # standby.
            standalone=True,
            stop_flag=end,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(partial(self._login, Logins()))
        group, _, version = SHARDED_MODELS.api_version.rpartition("/")
        # An event handler only: one for deletion, a timer or a daemon would have kopf add a
        # finalizer (ADR 1).
        kopf.on.event(
            group, version, SHARDED_MODELS.plural, registry=registry, id=SHARDED_MODELS.plural
        )(self._handle)
        return registry

    async def _handle(self, event: Mapping[str, Any], **_: Any) -> None:
        self._on_event(event["object"], event["type"] == "DELETED")

    async def _login(self, logins: Logins, **_kwargs: Any) -> kopf.AiohttpSession | None:
        # Read each time: the token of a service account is renewed within the hour.
        credentials = self._access.credentials()
        scheme, _, token = (credentials.authorization or "").partition(" ")
        info = kopf.ConnectionInfo(
            server=credentials.server,
            ca_path=credentials.ca_file,
            insecure=credentials.insecure,
            scheme=scheme.capitalize() or None,
            token=token or None,
            certificate_path=credentials.certificate_file,
            private_key_path=credentials.key_file,
        )
        return logins.session(info)


def watch_settings() -> kopf.OperatorSettings:
    """Return kopf's settings; each answers something it does under faults."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # leadership is our Lease
    settings.scanning.disabled = True  # no cluster-wide rights on CRDs and namespaces
    settings.posting.enabled = False  # events are ours
    # kopf wants a name. It sets the finalizer for handlers of deletion alone, of which there is
    # none.
    settings.persistence.finalizer = "shardwright.io/unused"
    settings.persistence.diffbase_storage = NothingKept()
    # A silent connection is dead: bookmarks come every 60 s.
    settings.watching.inactivity_timeout = 70
    settings.watching.server_timeout = 300
    settings.watching.chunk_size = PAGE
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.queueing.error_delays = (1, 2, 5, 10, 30, 60)
    # A worker for each object that is seen, for no longer than it is needed.
    settings.queueing.idle_timeout = 0.1
    return settings
