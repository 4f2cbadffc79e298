"""One GET, bounded in bytes, redirects and time, that sends the token to the named hub alone.

It uses the standard library because Hugging Face's client bounds neither size nor time, and brings
a dozen packages for three small files. Proxies (``HTTPS_PROXY``, ``NO_PROXY``) and
``SSL_CERT_FILE`` are respected.
"""

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Final, TypeVar
from urllib.error import URLError
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from shardwright.hub.places import Hub
from shardwright.hub.refusals import odd_answer, too_large, too_slow, unreachable

SILENCE_SECONDS: Final = 10.0
"""Longest silence of a connection. Source: huggingface_hub 2.4, DEFAULT_REQUEST_TIMEOUT."""

MAX_REDIRECTS: Final = 5
"""Basis: assumed; the hub needs two, for a renamed repository and for the content's host."""

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_PORTS: Final = {"https": 443, "http": 80}
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_DIGITS: Final = re.compile(r"[0-9]{1,6}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubResponse:
    """The response after all redirects.

    ``commit`` is the file's by the hub itself, empty if it names none. ``of_hub`` says whether the
    hub itself answered, and not a host that it redirected to. ``body`` is empty unless the status
    is 200.
    """

    status: int
    host: str
    of_hub: bool
    commit: str = ""
    error_code: str = ""
    retry_after_seconds: int | None = None
    body: bytes = b""


def get(hub: Hub, path: str, *, max_bytes: int) -> HubResponse:
    """Return the hub's response for a path.

    Raises:
        InputError: The answer is too large, incomplete, or redirects nowhere.
        HubUnavailableError: There is none.
    """
    url, commit = f"{hub.endpoint}/{path}", ""
    for _ in range(MAX_REDIRECTS + 1):
        here = urlsplit(url)
        of_hub = _origin(here) == _origin(urlsplit(hub.endpoint))
        with _opened(url, here, hub.token if of_hub else None) as response:
            stated = response.headers.get("X-Repo-Commit", "")
            commit = commit or (stated if of_hub and COMMIT.fullmatch(stated) else "")
            if response.status not in _REDIRECTS:
                return _answer(response, here, max_bytes, of_hub=of_hub, commit=commit)
            url = _next(url, here, response.headers.get("Location", ""))
    raise odd_answer(_host(here), f"redirects more than {MAX_REDIRECTS} times")


def within(seconds: float, host: str, work: Callable[[], T]) -> T:
    """Return the result of ``work``, waiting at most so long: a server that sends a byte now and
    then keeps any single read alive.

    Raises:
        HubUnavailableError: It takes longer. The thread is left behind and ends with the process.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return outcome.result(timeout=seconds)
    except TimeoutError:
        raise too_slow(host, seconds) from None


def _opened(url: str, here: SplitResult, token: str | None) -> HTTPResponse:
    # Beside the id in the address and the token, the hub learns the name of this program alone.
    headers = {"User-Agent": "shardwright", "Accept-Encoding": "identity"}
    request = Request(url, headers=headers)  # noqa: S310 - of https or http alone
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    # Without handlers for redirects, errors, files and FTP.
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    try:
        response: HTTPResponse = opener.open(request, timeout=SILENCE_SECONDS)
    except URLError as error:
        raise unreachable(_host(here), _reason(error.reason)) from None
    except (OSError, HTTPException) as error:
        raise unreachable(_host(here), _reason(error)) from None
    except ValueError:
        raise odd_answer(_host(here), "has no address that can be asked") from None
    return response


def _answer(
    response: HTTPResponse, here: SplitResult, max_bytes: int, *, of_hub: bool, commit: str
) -> HubResponse:
    waiting = response.headers.get("Retry-After", "").strip()
    return HubResponse(
        status=response.status,
        host=_host(here),
        of_hub=of_hub,
        commit=commit,
        error_code=response.headers.get("X-Error-Code", ""),
        retry_after_seconds=int(waiting) if _DIGITS.fullmatch(waiting) else None,
        body=_body(response, here, max_bytes) if response.status == HTTPStatus.OK else b"",
    )


def _body(response: HTTPResponse, here: SplitResult, max_bytes: int) -> bytes:
    file, expected = here.path.rpartition("/")[2], response.length
    try:
        body = (
            b"" if expected is not None and expected > max_bytes else response.read(max_bytes + 1)
        )
    except (OSError, HTTPException) as error:
        raise unreachable(_host(here), _reason(error)) from None
    if len(body) > max_bytes or (expected or 0) > max_bytes:
        raise too_large(_host(here), file, max_bytes)
    # A bounded read raises nothing if the answer ends too early.
    if expected is not None and len(body) != expected:
        raise unreachable(_host(here), f"it ended after {len(body)} of {expected} bytes")
    return body


def _next(url: str, here: SplitResult, location: str) -> str:
    """Return the target of a redirect: to https, or from http to http."""
    try:
        target = urljoin(url, location)
        there = urlsplit(target)
        usable = bool(there.hostname) and "@" not in there.netloc and there.port != 0
    except ValueError:
        raise odd_answer(_host(here), "redirects to an invalid address") from None
    if (
        not location
        or not usable
        or not target.isascii()
        or not target.isprintable()
        or " " in target
    ):
        raise odd_answer(_host(here), "redirects to an invalid address")
    if there.scheme not in ("https", here.scheme):
        raise odd_answer(_host(here), "redirects to another protocol than HTTPS")
    return target


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _host(parts: SplitResult) -> str:
    return parts.netloc


def _reason(error: object) -> str:
    """Return the reason as the operating system or TLS gives it, never a server's text."""
    if isinstance(error, TimeoutError):
        return f"it was silent for {SILENCE_SECONDS:.0f} s"
    if isinstance(error, OSError):
        return str(error.strerror or type(error).__name__)
    return "its answer is not HTTP" if isinstance(error, HTTPException) else "it cannot be asked"
