"""The ssh key that is made for a model."""

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from shardwright.cluster.writer import key_pair


def test_the_public_line_is_that_of_the_private_key() -> None:
    private, public = key_pair()
    read = load_ssh_private_key(private.encode(), password=None)
    line = read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert public == f"{line} shardwright\n"
    assert line.startswith("ssh-ed25519 ")


def test_no_two_models_get_the_same_key() -> None:
    assert key_pair()[0] != key_pair()[0]
