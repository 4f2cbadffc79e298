"""A new ssh key for a group whose leader starts the ranks of its followers.

The operator cannot read it again.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def key_pair() -> tuple[str, str]:
    """Return an Ed25519 key as OpenSSH keeps it, unencrypted, and the line of its public key."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return private, f"{public} shardwright\n"
