"""What an answer means: an object, a refusal by the API server, or somebody else's words."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, NoReturn

from shardwright.cluster.calls import NOT_A_STATUS, UNKNOWN_PATH, ApiError, Call
from shardwright.cluster.json_stream import (
    BrokenError,
    ListDocument,
    Unreadable,
    document,
    metadata_of,
)

LONGEST_RETRY_AFTER_SECONDS: Final = 30.0
NO_SUCH_PATH: Final = b"404 page not found"
"""What the API server says, in plain text, of paths that it does not serve (Go's
``http.NotFound``).
"""

PIECE_BYTES: Final = 1 << 16

EXCERPT: Final = 120  # characters of foreign text that are shown

Header = Callable[[str], str | None]
"""Returns a header of an answer by its name, None if it has none."""


def read_answer(call: Call, code: int, header: Header, text: bytes) -> dict[str, Any]:
    """Return the object of an answer.

    Raises:
        ApiError: a refusal, or no JSON object. Only a Status is the API server's own word: a load
            balancer's 404 has not deleted anything.
    """
    if code >= 300:  # noqa: PLR2004 - status codes of HTTP
        _refuse(call, code, header, text)
    body = _list(call, text) if call.project else _json(text) if text else {}
    if body is None:
        # A proxy's page with code 200: taken for an empty answer, it would say that nothing is
        # there.
        raise ApiError(
            0,
            "NotJson",
            f"{call.method} {call.path}: the answer is no JSON object: {_excerpt(text)}",
        )
    return body


def retry_after_seconds(header: Header) -> float | None:
    """Return the seconds the server asks to wait, bounded, None if it names none.

    >>> [
    ...     retry_after_seconds(headers.get)
    ...     for headers in ({"Retry-After": "7"}, {"Retry-After": "86400"}, {})
    ... ]
    [7.0, 30.0, None]
    """
    value = header("Retry-After") or ""
    if value.isascii() and value.isdecimal():
        return min(float(value), LONGEST_RETRY_AFTER_SECONDS)
    try:  # a moment of the server's clock
        # Its own Date is the other end, as our clock may be minutes off.
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(header("Date") or "")
    except (ValueError, TypeError):
        return None
    return min(max(wait, timedelta()).total_seconds(), LONGEST_RETRY_AFTER_SECONDS)


def _refuse(call: Call, code: int, header: Header, text: bytes) -> NoReturn:
    status = _json(text) or {}
    # Only a Status is the API server's own word. A 404 page of a proxy must not mean that an object
    # is gone.
    if status.get("kind") == "Status":
        message = str(status.get("message") or f"HTTP {code}")
        raise ApiError(code, str(status.get("reason") or ""), message, retry_after_seconds(header))
    what = f"{call.method} {call.path}: HTTP {code}"
    if code == HTTPStatus.NOT_FOUND and text.strip() == NO_SUCH_PATH:
        raise ApiError(
            code, UNKNOWN_PATH, f"{what}: the API server does not serve {call.resource.plural}"
        )
    if code == 429 or code >= 500:  # noqa: PLR2004  # it passes, whoever says it
        raise ApiError(code, "", f"{what}: {_excerpt(text)}", retry_after_seconds(header))
    raise ApiError(0, NOT_A_STATUS, f"{what} that is not the API server's: {_excerpt(text)}")


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        body = document(text)
    except BrokenError:
        return None
    return body if isinstance(body, dict) else None


def _list(call: Call, text: bytes) -> dict[str, Any] | None:
    """Return a LIST with the kept parts of its items, decoded one by one; None if it is no LIST."""
    page, kept = ListDocument(pieces(text)), []
    try:
        for item in page.items():
            if isinstance(item, Unreadable) or call.project is None:
                return None  # to leave it out would be to say that it is gone
            kept.append(call.project(item))
    except BrokenError:
        return None
    # A Status has neither that nor items.
    listed = metadata_of(page.fields).get("resourceVersion")
    return {**page.fields, "items": kept} if listed else None


def pieces(text: bytes) -> Iterator[bytes]:
    """Yield pieces of a text: decoded whole, one character beyond the BMP widens all to 4 bytes."""
    return (text[start : start + PIECE_BYTES] for start in range(0, len(text), PIECE_BYTES))


def _excerpt(text: bytes) -> str:
    return " ".join(text[: 4 * EXCERPT].decode(errors="replace").split())[:EXCERPT]
