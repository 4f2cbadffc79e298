"""Which hub, token and cache do the environment variables of Hugging Face's own client name?

Source: huggingface_hub 2.4 ``constants.py`` and ``utils/_auth.py``. Its older variable names are
not read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shardwright.errors import InputError, Problem

PUBLIC: Final = "https://huggingface.co"

_YES: Final = frozenset({"1", "ON", "YES", "TRUE"})

_TOKEN: Final = re.compile(r"[!-~]{1,1024}")
"""Tokens that a header can carry; the hub's own tokens have 37 letters and digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A hub: ``endpoint`` has no trailing slash, ``cache`` is its client's folder."""

    endpoint: str = PUBLIC
    token: str | None = field(default=None, repr=False)
    offline: bool = False
    cache: Path


def hub_of(environment: Mapping[str, str], *, offline: bool = False) -> Hub:
    """Return the hub that the environment names, not to be asked if either says ``offline``.

    Raises:
        InputError: ``HF_ENDPOINT`` is no address, or the token cannot be one; no message holds the
            token.
    """
    offline = offline or environment.get("HF_HUB_OFFLINE", "").upper() in _YES
    home = _home(environment)
    return Hub(
        endpoint=_endpoint(environment.get("HF_ENDPOINT") or PUBLIC),
        token=None if offline else _token(environment, home),
        offline=offline,
        cache=_folder(environment.get("HF_HUB_CACHE")) or home / "hub",
    )


def caches_of(environment: Mapping[str, str]) -> Path:
    """Return the user's folder for caches. Source: the XDG base directories."""
    return _folder(environment.get("XDG_CACHE_HOME")) or Path("~/.cache").expanduser()


def _home(environment: Mapping[str, str]) -> Path:
    return _folder(environment.get("HF_HOME")) or caches_of(environment) / "huggingface"


def _folder(path: str | None) -> Path | None:
    return Path(path).expanduser() if path else None


def _endpoint(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = (
            parts.scheme in ("https", "http")
            and parts.hostname
            and "@" not in parts.netloc
            and parts.port != 0
        )
    except ValueError:  # an invalid port or bracket
        usable = False
    if (
        not usable
        or not address.isascii()
        or not address.isprintable()
        or " " in address
        or "?" in address
        or "#" in address
    ):
        raise _invalid(
            "HF_ENDPOINT", "is not the address of a hub", f"set it as {PUBLIC}, or unset it"
        )
    return address.rstrip("/")


def _token(environment: Mapping[str, str], home: Path) -> str | None:
    token, source = environment.get("HF_TOKEN", "").strip(), "HF_TOKEN"
    if not token and environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() not in _YES:
        kept = _folder(environment.get("HF_TOKEN_PATH")) or home / "token"
        token, source = _kept(kept), str(kept)
    if token and not _TOKEN.fullmatch(token):
        raise _invalid(source, "holds something other than a token", "put the token alone there")
    return token or None


def _kept(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # as without one: the hub asks for it
        return ""


def _invalid(what: str, limit: str, remedy: str) -> InputError:
    return InputError([Problem(code="HubSettingInvalid", what=what, limit=limit, remedy=remedy)])
