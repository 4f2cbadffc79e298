"""Checksums of all files, and a signature over them; whoever has the public key checks both without
a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from release.places import WORK
from tests.harness import build
from tests.harness.errors import HarnessError
from tests.kind.shell import run

CHECKSUMS: Final = "SHA256SUMS"
BUNDLE: Final = f"{CHECKSUMS}.sigstore.json"
KEY_VARIABLE: Final = "COSIGN_KEY"
"""A private key of `cosign generate-key-pair`, a file or what else cosign reads; its password is in
COSIGN_PASSWORD.
"""

_VERIFY: Final = ("--insecure-ignore-tlog=true",)
"""The signature is by a key that is known, not by an identity that a public log has seen."""


def write_checksums(out: Path) -> Path:
    """Write the SHA-256 of every file in the folder as `sha256sum --check` reads them."""
    file = out / CHECKSUMS
    others = [
        path
        for path in sorted(out.iterdir())
        if path.is_file() and path.name not in (CHECKSUMS, BUNDLE)
    ]
    file.write_text(
        "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in others
        )
    )
    run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], folder=out)
    return file


def sign(out: Path) -> str:
    """Sign the checksums with the key that the environment names; return what was done.

    Without a key a new one signs a copy, to show that it can be done, and nothing of that is
    released.
    """
    given = os.environ.get(KEY_VARIABLE)
    if given:
        _sign(given, out / CHECKSUMS, out / BUNDLE, dict(os.environ))
        return f"{CHECKSUMS} is signed by {KEY_VARIABLE}"
    home = WORK / "signing"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    environment = {**os.environ, "COSIGN_PASSWORD": ""}
    run([build.cosign(), "generate-key-pair"], environment=environment, folder=home)
    file = Path(shutil.copy(out / CHECKSUMS, home))
    _sign(str(home / "cosign.key"), file, home / BUNDLE, environment)
    verify(home / "cosign.pub", file, home / BUNDLE)
    file.write_text(file.read_text().replace("0", "1", 1))
    try:
        verify(home / "cosign.pub", file, home / BUNDLE)
    except HarnessError:
        (out / BUNDLE).unlink(missing_ok=True)
        return (
            f"not signed: {KEY_VARIABLE} names no key; with one made for this the signature "
            "holds, and not over a changed file"
        )
    raise HarnessError("a signature holds over a file that was changed")


def verify(public_key: Path, file: Path, bundle: Path) -> None:
    """Raise where a signature does not hold."""
    run([build.cosign(), "verify-blob", "--key", public_key, "--bundle", bundle, *_VERIFY, file])


def _sign(key: str, file: Path, bundle: Path, environment: dict[str, str]) -> None:
    offline = ["--tlog-upload=false", "--use-signing-config=false", "--yes"]
    run(
        [build.cosign(), "sign-blob", "--key", key, *offline, "--bundle", bundle, file],
        environment=environment,
    )
