"""The ssh key that is made for a model: what ssh itself and another implementation make of it."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from shardwright.cluster.ssh_key import key_pair, public_key

RFC_8032 = {
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    ),
    "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    ),
}
"""Private and public keys of the first two test vectors of section 7.1."""

SEEDS = [bytes(32), bytes(range(32)), b"\xff" * 32, b"shardwright".ljust(32, b"!")]


@pytest.mark.parametrize("seed", RFC_8032)
def test_the_public_key_is_the_standards(seed: str) -> None:
    assert public_key(bytes.fromhex(seed)).hex() == RFC_8032[seed]


@pytest.mark.parametrize("seed", SEEDS, ids=bytes.hex)
def test_another_implementation_reads_the_pair_and_gives_the_same_public_key(seed: bytes) -> None:
    private, public = key_pair(seed)
    read = load_ssh_private_key(private.encode(), password=None)
    assert isinstance(read, Ed25519PrivateKey)
    assert read.private_bytes_raw() == seed
    line = read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert public == f"{line} shardwright\n"


def test_ssh_itself_takes_the_private_key(tmp_path: Path) -> None:
    private, public = key_pair(SEEDS[1])
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(private)
    said = subprocess.run(["ssh-keygen", "-y", "-f", str(file)], capture_output=True, text=True, check=True)
    assert said.stdout == public
