"""The content of Secrets the operator creates: made and sent once, then only the kubelet's."""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

from shardwright.cluster.ssh_key import key_pair
from shardwright.rendering import group_token, ssh

TOKEN_BYTES: Final = 32
"""Of a group's token: as many as HMAC-SHA256 puts out (RFC 2104, section 3)."""


def _ssh_key() -> dict[str, str]:
    private, public = key_pair()
    return {ssh.PRIVATE_KEY: private, ssh.PUBLIC_KEY: public}


def _group_token() -> dict[str, str]:
    return {group_token.FILE: secrets.token_hex(TOKEN_BYTES)}


# By type, not by name: names follow from the operator's key, and nothing can be read off them.
_MADE: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    ssh.SECRET_TYPE: _ssh_key,
    group_token.SECRET_TYPE: _group_token,
}


def new_content(secret_type: str) -> dict[str, str]:
    """Return the content of a new Secret of one of our types: file names to texts."""
    return _MADE[secret_type]()
