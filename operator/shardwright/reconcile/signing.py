"""Did the operator write this text, kept in an object that others may write? A signature is an
HMAC-SHA256 over the kind of text, the uid of its resource, and the text, so it can neither be
forged nor moved to another text. It proves the writer, never that a text is the newest: for that
the text has a generation or serial.
"""

import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

KEY_BYTES_MIN: Final = 32
"""Length of a key in bytes. Basis: as long as what SHA-256 gives; source: RFC 2104, section 3."""


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Keys: the first signs, each verifies; without any nothing is signed and nothing verifies."""

    secrets: tuple[bytes, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def sign(self, kind: str, uid: str, text: str) -> str | None:
        """Return the signature of a text, as hexadecimal digits, or None without a key."""
        # With the first: a new key stands behind it until every replica has read both, as none can
        # verify by a key that it has not read (ADR 12).
        return next(_signatures(self, kind, uid, text), None)

    def signatures(self, kind: str, uid: str, text: str) -> tuple[str, ...]:
        """Return a text's signatures, one by each key, the signing key's first."""
        return tuple(_signatures(self, kind, uid, text))

    def verify(self, signature: str, kind: str, uid: str, text: str) -> bool:
        """Return whether a signature is that of this text, by any of the keys."""
        # compare_digest raises on text beyond ASCII, and anybody may have written the signature.
        given = signature.encode(errors="replace")
        return any(
            hmac.compare_digest(given, made.encode()) for made in _signatures(self, kind, uid, text)
        )


def _signatures(keys: SigningKeys, kind: str, uid: str, text: str) -> Iterator[str]:
    # No two messages run into each other.
    message = json.dumps([kind, uid, text]).encode()
    for secret in keys.secrets:
        yield hmac.digest(secret, message, "sha256").hex()


def read_keys(text: str) -> SigningKeys:
    """Return the keys of a file: one a line, blank lines apart.

    Raises:
        ValueError: it holds none, or one that is too short.
    """
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise ValueError(
            f"it holds no key: write one a line, of {KEY_BYTES_MIN} characters at least (openssl "
            "rand -hex 32)"
        )
    for number, line in lines:
        if (length := len(line.encode())) < KEY_BYTES_MIN:
            raise ValueError(
                f"the key in line {number} has {length} bytes, and needs {KEY_BYTES_MIN} (openssl "
                "rand -hex 32)"
            )
    return SigningKeys(tuple(line.encode() for _, line in lines))
