"""Responses of the API server as they arrive, and why there is none."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import urllib3

from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.json_stream import BrokenError, SilentError
from shardwright.cluster.permissions import may_now
from shardwright.cluster.resources import Collection
from shardwright.cluster.transport import NO_SUCH_PATH

READ_BYTES: Final = 2**18
REFUSAL_BYTES: Final = 2**16  # of an answer that refuses; the rest says nothing more


class Trouble(StrEnum):
    """Why a resource cannot be read."""

    UNREACHABLE = "Unreachable"  #: no answer
    FORBIDDEN = "Forbidden"  #: not authenticated (401) or not permitted (403)
    NOT_SERVED = "NotServed"  #: the cluster does not have the kind (404)
    FAILING = "Failing"  #: any other answer that is not 200, or an ERROR in a watch
    EXPIRED = "Expired"  #: the version is too old (410): a LIST follows
    BROKEN = "Broken"  #: what arrives is not what was asked for, or ends in the middle
    SILENT = "Silent"  #: nothing arrives
    FAULT = "Fault"  #: ours


TROUBLES: Final[dict[int, Trouble]] = {
    HTTPStatus.UNAUTHORIZED: Trouble.FORBIDDEN,
    HTTPStatus.FORBIDDEN: Trouble.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Trouble.NOT_SERVED,
    HTTPStatus.GONE: Trouble.EXPIRED,
}
"""By code; all others are ``FAILING``."""


class ReadError(Exception):
    """An attempt has failed; ``established``: a stream had been opened before."""

    def __init__(self, trouble: Trouble, message: str, *, established: bool = False) -> None:
        self.trouble = trouble
        self.established = established
        super().__init__(message)


@contextmanager
def open_stream(client: Client, call: Call, silence_seconds: float) -> Iterator["Stream"]:
    """Yield the response to a list or watch as it arrives; closed at the end.

    Raises:
        ReadError: there is no answer, or it refuses.
        BrokenError: the answer breaks off; raised where it is read.
        SilentError: nothing comes for ``silence_seconds``; raised where it is read.
    """
    try:
        response = client.open(call, silence_seconds).response
    except (ApiError, OSError) as error:  # the token's file may be out of reach
        raise ReadError(Trouble.UNREACHABLE, str(error)) from error
    # Closed, not given back: an answer that was not read to its end cannot be followed by another.
    with closing(response):
        if response.status != HTTPStatus.OK:
            raise _refused(*_refusal(response))
        yield Stream(response)


def check_may(client: Client, objects: Collection, seconds: float) -> None:
    """Ask whether objects may be listed, so that no needless request is refused.

    Raises:
        ReadError: they may not, or there is no answer.
    """
    try:
        # Every authenticated user may ask this by default, so no denial stands in an audit log.
        allowed = may_now(client, objects.resource, "list", seconds, objects.namespace)
    except ApiError as error:
        raise (
            _refused(error.code, str(error))
            if error.code
            else ReadError(Trouble.UNREACHABLE, str(error))
        ) from error
    except OSError as error:  # the token's file may be out of reach
        raise ReadError(Trouble.UNREACHABLE, str(error)) from error
    if not allowed:
        raise ReadError(Trouble.FORBIDDEN, f"the operator may not list {objects}")


class Stream:
    """The body of a response; iterated over by one thread, ended by any."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return _chunks(self._response)

    def end(self) -> None:
        """End the wait of the reading thread."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
            self._response.shutdown()


def event_of(event: object) -> tuple[str, dict[str, Any]]:
    """Return type and object of an event.

    Raises:
        BrokenError: It is none.
    """
    whole = event if isinstance(event, dict) else {}
    kind = whole.get("type")
    content = whole.get("object")
    if not isinstance(kind, str) or not isinstance(content, dict):
        raise BrokenError("a line is no event")
    return kind, content


def error_in_stream(status: Mapping[str, Any]) -> ReadError:
    """Return the error that a watch's ERROR event reports."""
    code = status.get("code")
    return _refused(
        code if isinstance(code, int) else 0, str(status.get("message", "")), established=True
    )


def _refused(code: int, message: str, *, established: bool = False) -> ReadError:
    trouble = TROUBLES.get(code, Trouble.FAILING)
    return ReadError(trouble, f"{code} {message}" if code else message, established=established)


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        if response.chunked:  # as every API server sends it
            yield from response.stream(READ_BYTES)
        else:
            while chunk := response.read1(READ_BYTES):
                yield chunk
    except urllib3.exceptions.ReadTimeoutError as error:
        raise SilentError(str(error)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise BrokenError(str(error)) from error


def _refusal(response: Any) -> tuple[int, str]:
    """Return code and words of a refusal, code 0 if it is no API server's.

    An API server answers with a Status, or with a line of plain text if it lacks the kind.
    """
    try:
        text = response.read(REFUSAL_BYTES)
        if text.startswith(NO_SUCH_PATH):
            return response.status, "the API server does not have this kind"
        return response.status, str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError, urllib3.exceptions.HTTPError):
        # Not the API server's: a proxy's 404 must not say that the kind is gone from the cluster.
        return (0, f"{response.status} {response.reason or ''}, in words that are no API server's")
