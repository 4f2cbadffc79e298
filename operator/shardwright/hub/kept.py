"""What was read of a hub, kept in a folder of our own, in the layout of the hub's own client.

That client's cache is not written to: its newest commit would become one whose weights are missing.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

from shardwright.errors import InputError
from shardwright.hub.checkpoint import NEWEST, Checkpoint, folder_of, read_snapshot
from shardwright.hub.places import Hub, caches_of
from shardwright.modelspec.checkpoint_files import index_of
from shardwright.modelspec.parse import CONFIG_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """A checkpoint that was read before, and the day (UTC) on which it was."""

    checkpoint: Checkpoint
    since: date


def kept_place(environment: Mapping[str, str], hub: Hub) -> Path:
    """Return the folder for what is read of this hub, in that for caches."""
    host = quote(hub.endpoint.partition("://")[2], safe="")
    return caches_of(environment) / "shardwright" / "hub" / host


def find_kept(place: Path, model: str, revision: str | None) -> KeptCheckpoint | None:
    """Return what is kept of a model at a commit (None: the newest when it was last read), None if
    nothing is, or nothing that can be read.
    """
    folder = folder_of(place, model)
    try:
        found = read_snapshot(folder, revision, source=model)
        if found is None or found.commit is None:
            return None
        named = folder / "refs" / NEWEST if revision is None else _snapshot(folder, found.commit)
        since = datetime.fromtimestamp(named.stat().st_mtime, tz=UTC).date()
    except (OSError, InputError):
        return None
    return KeptCheckpoint(checkpoint=found, since=since)


def keep(place: Path, model: str, checkpoint: Checkpoint, *, newest: bool) -> None:
    """Keep a checkpoint of a hub, whole or not at all, for this user alone.

    Raises:
        OSError: The folder cannot be written.
    """
    folder = folder_of(place, model)
    assert checkpoint.commit is not None  # noqa: S101 - a hub names the commit of its files
    texts = {**checkpoint.files, **index_of(checkpoint.tensor_bytes)}
    # The config last: without it a commit counts as not there.
    for name in sorted(texts, key=CONFIG_FILE.__eq__):
        _write(_snapshot(folder, checkpoint.commit) / name, texts[name])
    if newest:
        _write(folder / "refs" / NEWEST, checkpoint.commit)


def _snapshot(folder: Path, commit: str) -> Path:
    return folder / "snapshots" / commit


def _make(folder: Path) -> None:
    """Make a folder that only the user may look into, and those that it is in."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _write(file: Path, text: str) -> None:
    _make(file.parent)
    descriptor, beside = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        Path(beside).replace(file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
