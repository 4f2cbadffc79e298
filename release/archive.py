"""Archives that are the same bytes for the same files: sorted, owned by root, with one time."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import IO


def write_tar(folder: Path, stream: IO[bytes] | gzip.GzipFile, time: int, prefix: str = "") -> None:
    """Write what is in a folder as a tar archive."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, arcname=prefix + str(path.relative_to(folder)))
            if entry.islnk():  # one of several names of a file: each is written whole
                entry.type, entry.size = tarfile.REGTYPE, path.stat().st_size
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = time
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            with path.open("rb") if entry.isreg() else io.BytesIO() as content:
                archive.addfile(entry, content if entry.isreg() else None)


def packed(folder: Path, time: int, prefix: str = "") -> bytes:
    """Return the tar archive of a folder, compressed by gzip."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0, filename="") as stream:
        write_tar(folder, stream, time, prefix)
    return buffer.getvalue()


def tar_digest(content: bytes) -> str:
    """Return the SHA-256 of the tar archive inside a compressed one: what an image's configuration
    calls a layer.
    """
    return hashlib.sha256(gzip.decompress(content)).hexdigest()


def size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
