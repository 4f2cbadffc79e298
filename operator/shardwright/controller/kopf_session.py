"""kopf's connections to the API server, which pass on only the kept part of each ShardedModel.

kopf decodes an answer as a whole and holds each object while its handlers run. An inline config or
managed fields may be 1.5 MB, thirty times as much as Python values. So one object at a time is
decoded before kopf sees it, without what is not kept (``cluster.kept_model``).
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import kopf

from shardwright.cluster.answers import pieces
from shardwright.cluster.json_stream import (
    BrokenError,
    Lines,
    ListDocument,
    Unreadable,
    metadata_of,
)
from shardwright.cluster.kept_model import project_model
from shardwright.cluster.resources import SHARDED_MODELS

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
