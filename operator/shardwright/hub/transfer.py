"""One GET, bounded in bytes, redirects and time, that sends the token to the named hub alone.

It uses the standard library because Hugging Face's client bounds neither size nor time, and brings
a dozen packages for three small files. Proxies (``HTTPS_PROXY``, ``NO_PROXY``) and
``SSL_CERT_FILE`` are respected.

The errors for a hub's refusals and failures, each with a remedy. Of a server's answer they quote
only numbers and host names.
"""

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Final, Literal, TypeVar
from urllib.error import URLError
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from shardwright.errors import InputError, Problem
from shardwright.hub.places import Hub
from shardwright.modelspec.catalogue import near_to

BY_CONFIG: Final = "give its config.json with --config FILE"

_WITHOUT: Final = f"{BY_CONFIG} (--offline asks nobody)"


class HubUnavailableError(Exception):
    """The hub gives no answer now; it may later."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.sentence())


class HubRefusal(Enum):
    """Why the hub does not give a file."""

    NO_REPOSITORY = "no repository of this name that we may see"
    NO_REVISION = "no such commit"
    NO_FILE = "no such file in the commit"
    GATED = "its owner decides who may read it"
    TOKEN_UNKNOWN = "the hub does not know the token"  # noqa: S105 - no secret
    NO_RIGHT = "the token may not read it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a file of a model at a revision, with or without a token."""

    endpoint: str
    model: str
    revision: str
    with_token: bool


def refusal_of(status: int, error_code: str, *, with_token: bool) -> HubRefusal | None:
    """Return why a hub refuses, None if the answer is not a known refusal.

    To a client without a token the hub answers 401, not 404, for a missing repository. Source:
    huggingface_hub 2.4 ``utils/_http.py:hf_raise_for_status``.

    Args:
        status: Of HTTP.
        error_code: The header ``X-Error-Code``; mirrors do not send it.
        with_token: Whether a token was sent.
    """
    named = {
        "GatedRepo": HubRefusal.GATED,
        "RepoNotFound": HubRefusal.NO_REPOSITORY,
        "RevisionNotFound": HubRefusal.NO_REVISION,
        "EntryNotFound": HubRefusal.NO_FILE,
    }
    match status:
        case 401 | 403 | 404 if error_code in named:
            return named[error_code]
        case 401:
            return HubRefusal.TOKEN_UNKNOWN if with_token else HubRefusal.NO_REPOSITORY
        case 403:
            return HubRefusal.NO_RIGHT
        case 404:
            return HubRefusal.NO_FILE
    return None


def refused(refusal: HubRefusal, asked: Asked, file: str) -> InputError:
    """Return the error for a refusal."""
    match refusal:
        case HubRefusal.GATED | HubRefusal.TOKEN_UNKNOWN | HubRefusal.NO_RIGHT:
            return _denied(*_why_denied(refusal, asked))
        case HubRefusal.NO_REPOSITORY | HubRefusal.NO_REVISION | HubRefusal.NO_FILE:
            near = near_to(asked.model) if refusal is HubRefusal.NO_REPOSITORY else ""
            return _missing(*_why_missing(refusal, asked, file), near)


def _why_denied(
    refusal: Literal[HubRefusal.GATED, HubRefusal.TOKEN_UNKNOWN, HubRefusal.NO_RIGHT], asked: Asked
) -> tuple[str, str, str]:
    model, endpoint = repr(asked.model), asked.endpoint
    own = "the account of the token" if asked.with_token else "an account"
    terms = f"accept its terms at {endpoint}/{asked.model} with {own}"
    match refusal:
        case HubRefusal.GATED:
            remedy = terms if asked.with_token else f"{terms} and set HF_TOKEN to a token of it"
            return model, f"is gated on {endpoint}", remedy
        case HubRefusal.TOKEN_UNKNOWN:
            remedy = (
                f"make one at {endpoint}/settings/tokens and set HF_TOKEN to it, or unset HF_TOKEN"
            )
            return "the token", f"is not one of {endpoint}", remedy
        case HubRefusal.NO_RIGHT:
            limit = f"may not read {model} on {endpoint}"
            return "the token", limit, "use one with the right to read this repository"


def _why_missing(
    refusal: Literal[HubRefusal.NO_REPOSITORY, HubRefusal.NO_REVISION, HubRefusal.NO_FILE],
    asked: Asked,
    file: str,
) -> tuple[str, str, str]:
    model, endpoint = repr(asked.model), asked.endpoint
    match refusal:
        case HubRefusal.NO_REPOSITORY:
            other = (
                "use a token that may read it"
                if asked.with_token
                else "set HF_TOKEN to a token that may read it"
            )
            limit = f"is not on {endpoint}, or is private"
            return model, limit, f"correct the id, or {other}"
        case HubRefusal.NO_REVISION:
            limit = f"has no commit {asked.revision} on {endpoint}"
            return model, limit, "name a commit of this repository"
        case HubRefusal.NO_FILE:
            what, limit = f"{model} at {asked.revision}", f"has no {file} on {endpoint}"
            return what, limit, "name a repository in the format of transformers"


def not_cached(model: str, revision: str, cache: str) -> InputError:
    """Return the error for a model that is missing from the cache while the hub is offline."""
    what, limit = (
        f"{model!r} at {revision}",
        f"is not in the cache {cache}, and the hub must not be asked",
    )
    return _missing(
        what, limit, f"{BY_CONFIG}, or leave --offline and HF_HUB_OFFLINE out", near_to(model)
    )


def busy(host: str, wait_seconds: int | None) -> HubUnavailableError:
    """Return the error for 429: too many requests with this token, or from this address."""
    remedy = "try again later" if wait_seconds is None else f"try again in {wait_seconds} s"
    return _unavailable(
        host,
        "answers 429: too many requests",
        f"{remedy} (with HF_TOKEN it allows more), or {_WITHOUT}",
    )


def failing(host: str, status: int) -> HubUnavailableError:
    """Return the error for an answer that says nothing of the model, such as 5xx or a proxy's."""
    return _unavailable(host, f"answers {status}", f"try again, or {_WITHOUT}")


def unreachable(host: str, reason: str) -> HubUnavailableError:
    """Return the error for a host that does not answer; ``reason`` is the operating system's."""
    remedy = f"check the network, HTTPS_PROXY and HF_ENDPOINT, or {_WITHOUT}"
    return _unavailable(host, f"cannot be reached: {reason}", remedy)


def too_slow(host: str, seconds: float) -> HubUnavailableError:
    """Return the error for an answer that takes too long."""
    return _unavailable(
        host, f"did not answer in full within {seconds:.0f} s", f"try again, or {_WITHOUT}"
    )


def too_large(host: str, file: str, max_bytes: int) -> InputError:
    """Return the error for a file larger than any model has."""
    return _odd(f"{file} of {host}", f"is larger than the limit of {max_bytes} bytes")


def odd_answer(host: str, limit: str) -> InputError:
    """Return the error for an answer that no hub gives; ``limit`` is a predicate about the host."""
    return _odd(host, limit)


def _unavailable(host: str, limit: str, remedy: str) -> HubUnavailableError:
    return HubUnavailableError(
        Problem(code="HubUnavailable", what=host, limit=limit, remedy=remedy)
    )


def _denied(what: str, limit: str, remedy: str) -> InputError:
    return InputError([Problem(code="HubAccessDenied", what=what, limit=limit, remedy=remedy)])


def _missing(what: str, limit: str, remedy: str, near: str = "") -> InputError:
    return InputError(
        [Problem(code="HubModelMissing", what=what, limit=limit, gap=near, remedy=remedy)]
    )


def _odd(what: str, limit: str) -> InputError:
    remedy = f"check HF_ENDPOINT and the proxy, or {_WITHOUT}"
    return InputError([Problem(code="HubAnswerInvalid", what=what, limit=limit, remedy=remedy)])


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
