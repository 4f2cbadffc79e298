"""Where everything is kept between runs, and under which name: the digest of what it was made
from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import build

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def folder() -> Path:
    """`$XDG_CACHE_HOME/shardwright/kind`, made where it does not exist."""
    home = build.cache_folder().parent / "kind"
    home.mkdir(parents=True, exist_ok=True)
    return home


def digest(*parts: str | bytes | Path) -> str:
    """16 hexadecimal digits of texts, bytes and files; folders count with the names and contents of
    all their files.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for file in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if file.is_file():
                    total.update(
                        str(file.relative_to(part.parent)).encode()
                        + b"\0"
                        + hashlib.sha256(file.read_bytes()).digest()
                    )
        else:
            content = part.encode() if isinstance(part, str) else part
            total.update(str(len(content)).encode() + b"\0" + content)
    return total.hexdigest()[:16]


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache. Where it is missing, `make` fills a temporary one, which is
    then renamed: never a half.
    """
    home = folder() / name
    if not home.exists():
        building = home.with_name(f"{name}.building-{os.getpid()}")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        try:
            make(building)
            building.rename(home)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return home


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """An empty folder in the cache for the time of a `with`."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder()) as home:
        yield Path(home)
