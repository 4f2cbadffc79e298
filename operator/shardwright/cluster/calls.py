"""One request to the API server, its urgency, and the error it may end in."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from shardwright.cluster.resources import EVENTS, REVIEWS, Resource

JSON: Final = "application/json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What asks for the metadata of an object alone."""

METADATA: Final = {
    "list": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "watch": METADATA_ONLY,
}
"""What asks for metadata alone, by verb."""

DRY_RUN: Final = (("dryRun", "All"),)

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""Reason of an :class:`ApiError`: the time that its caller gave a request was over."""

NOT_A_STATUS: Final = "NotAStatus"
"""Reason of an :class:`ApiError`: something between us and the API server refused, not the API
server.
"""

TOO_LARGE: Final = "TooLarge"
"""Reason of an :class:`ApiError`: the answer has more bytes than are read."""

UNKNOWN_PATH: Final = "UnknownPath"
"""Reason of an :class:`ApiError` with code 404: the API server does not serve this kind of object.
"""


class Urgency(IntEnum):
    """What a request is for; the smaller, the sooner it is sent."""

    LEASE = 0
    """Leadership: waits for nothing."""
    REPAIR = 1
    """Calls that repair a group: deletions, zero replicas, restarts, and the reads right before
    them.
    """
    OBJECTS = 2
    """Reads, and the objects of new plans."""
    STATUS = 3
    EVENTS = 4
    """Events and dry runs."""


class ApiError(Exception):
    """The API server refused a request or did not answer (``code`` 0)."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)

    @property
    def passes(self) -> bool:
        """Return whether the same request may succeed a little later."""
        # A body that is too large is as large the next time. 409 is not among them: its meaning
        # depends on the write, which the caller knows.
        return (self.code in {0, 429} and self.reason != TOO_LARGE) or self.code >= 500  # noqa: PLR2004 - status codes of HTTP


class NotLeadingError(ApiError):
    """A write was not sent, because somebody else may be leading."""

    def __init__(self) -> None:
        super().__init__(403, "NotLeading", "another operator leads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; ``verb`` is the RBAC verb, ``project`` reduces each item of a LIST."""

    verb: str
    resource: Resource
    path: str
    method: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    project: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace it is about, "" for none or all."""
        return self.path.partition("/namespaces/")[2].partition("/")[0]

    @property
    def writes(self) -> bool:
        """Return whether only a leader may send it; a question stores nothing."""
        return self.method != "GET" and self.resource not in REVIEWS

    @property
    def urgency(self) -> Urgency:
        """Return the urgency unless the caller sets another."""
        # Writes that end a group have the right of way: a flood of new models must not hold a
        # repair up.
        if self.verb == "delete":
            return Urgency.REPAIR
        if self.resource is EVENTS or DRY_RUN[0] in self.query:
            return Urgency.EVENTS
        return Urgency.STATUS if self.path.endswith("/status") else Urgency.OBJECTS
