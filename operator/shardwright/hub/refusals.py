"""The errors for a hub's refusals and failures, each with a remedy. Of a server's answer they quote
only numbers and host names.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from shardwright.errors import InputError, Problem
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
