"""A new Ed25519 key in the form that ssh reads, from random bytes: no library of ours has one, and image and operator no ssh.

Only the public point is computed (RFC 8032, section 5.1.5); nothing is ever signed here. It takes about 50 ms.
"""

import hashlib
import struct
from base64 import b64encode
from typing import Final

SEED_BYTES: Final = 32
"""Length of an Ed25519 private key. Source: RFC 8032, section 5.1.5."""

_PRIME: Final = 2**255 - 19
_CURVE: Final = -121665 * pow(121666, -1, _PRIME) % _PRIME
_TYPE: Final = b"ssh-ed25519"
_COMMENT: Final = b"shardwright"
_LINE: Final = 70
_BLOCK: Final = 8

Point = tuple[int, int]
_BASE: Final[Point] = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)
"""The curve's base point. Source: RFC 8032, section 5.1."""


def key_pair(seed: bytes) -> tuple[str, str]:
    """Return a private key as OpenSSH keeps it, unencrypted, and the line of its public key.

    Args:
        seed: the private key itself: :data:`SEED_BYTES` bytes that nobody else knows.
    """
    public = public_key(seed)
    blob = _string(_TYPE) + _string(public)
    return _private(seed, public, blob), f"{_TYPE.decode()} {b64encode(blob).decode()} {_COMMENT.decode()}\n"


def public_key(seed: bytes) -> bytes:
    """Return the 32 bytes of the public key of a seed.

    >>> public_key(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")).hex()[:16]
    'd75a980182b10ab7'
    """
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & (2**254 - 8) | 2**254
    x, y = _times(scalar, _BASE)
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _times(scalar: int, point: Point) -> Point:
    total = (0, 1)
    while scalar:
        if scalar & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        scalar >>= 1
    return total


def _sum(one: Point, other: Point) -> Point:
    (x, y), (u, v) = one, other
    both = _CURVE * x * u * y * v
    return (x * v + u * y) * pow(1 + both, -1, _PRIME) % _PRIME, (y * v + x * u) * pow(1 - both, -1, _PRIME) % _PRIME


def _private(seed: bytes, public: bytes, blob: bytes) -> str:
    """Return the file that OpenSSH's PROTOCOL.key describes: one key, no cipher; equal numbers show that it was read right."""
    check = struct.pack(">I", int.from_bytes(hashlib.sha256(public).digest()[:4], "big"))
    secret = check * 2 + blob + _string(seed + public) + _string(_COMMENT)
    secret += bytes(range(1, -len(secret) % _BLOCK + 1))
    head = b"openssh-key-v1\0" + _string(b"none") + _string(b"none") + _string(b"") + struct.pack(">I", 1)
    text = b64encode(head + _string(blob) + _string(secret)).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----", ""])


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content
