"""The small files that describe a checkpoint, from the hub, its cache or a folder, pinned to a
commit.

Never reads weights, and refuses a file larger than any model has.

What was read of a hub, kept in a folder of our own, in the layout of the hub's own client.

That client's cache is not written to: its newest commit would become one whose weights are missing.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from shardwright.errors import InputError, Problem
from shardwright.hub.places import Hub, caches_of
from shardwright.hub.transfer import (
    COMMIT,
    Asked,
    HubRefusal,
    HubResponse,
    busy,
    failing,
    get,
    not_cached,
    odd_answer,
    refusal_of,
    refused,
    within,
)
from shardwright.modelspec.checkpoint_files import LARGEST_BYTES, index_of
from shardwright.modelspec.config_json import (
    CONFIG_FILE,
    INDEX_FILE,
    MAX_CONFIG_BYTES,
    QUANTIZATION_FILE,
    folder_text,
    parse_config,
)

MAX_INDEX_BYTES: Final = 32 * 1024**2
"""Largest index that is read; DeepSeek-V3's, with 91,991 tensors, has 8.9 MB."""

DEADLINE_SECONDS: Final = 60.0
"""For all files of a checkpoint. Basis: assumed; they are a few KB, the index at most some MB."""

PATIENCE_SECONDS: Final = 3.0
"""For those that say how a model is built, while somebody waits for a plan. Basis: assumed; two
files of a few KB take at most six round trips, and a person takes longer silence for a fault.
"""

NEWEST: Final = "main"
"""The hub's name for the branch with the newest commit."""

_FILES: Final = {
    CONFIG_FILE: MAX_CONFIG_BYTES,
    QUANTIZATION_FILE: MAX_CONFIG_BYTES,
    INDEX_FILE: MAX_INDEX_BYTES,
}
_LONGEST_REFERENCE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The small files of a checkpoint.

    ``files`` maps names to texts
    (:func:`shardwright.modelspec.config_json.folder_text` joins them).
    ``commit`` is None for a folder that does not name one, ``tensor_bytes`` without an index.
    """

    files: Mapping[str, str]
    commit: str | None
    tensor_bytes: int | None

    @property
    def config_text(self) -> str:
        """Return the files joined into the text that the parser reads."""
        return folder_text({**self.files, **index_of(self.tensor_bytes)}) or ""


def fetch(hub: Hub, model: str, revision: str | None) -> Checkpoint:
    """Return a model's checkpoint from the hub, or from its client's cache when the hub is offline.

    Args:
        hub: Which hub.
        model: Id of the repository, ``org/name``.
        revision: Commit, 40 hexadecimal digits; the newest without one.

    Raises:
        InputError: It is not there, may not be read, or is no checkpoint.
        HubUnavailableError: The hub cannot be asked now.
    """
    return _read(hub, model, revision, (QUANTIZATION_FILE, INDEX_FILE), DEADLINE_SECONDS)


def fetch_config(hub: Hub, model: str, revision: str | None) -> Checkpoint:
    """Return a model's checkpoint as :func:`fetch`, without its index, which may be large and says
    nothing that a plan needs; within ``PATIENCE_SECONDS``.
    """
    return _read(hub, model, revision, (QUANTIZATION_FILE,), PATIENCE_SECONDS)


def _read(
    hub: Hub, model: str, revision: str | None, others: tuple[str, ...], seconds: float
) -> Checkpoint:
    if hub.offline:
        return _cached(hub, model, revision)
    host = hub.endpoint.partition("://")[2]
    return within(seconds, host, lambda: _fetched(hub, model, revision, others))


def read_folder(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder, or the newest one in a model's folder of the hub's cache;
    None if there is none.

    Raises:
        InputError: Its files are no checkpoint's.
        OSError: A file cannot be read.
    """
    if (folder / CONFIG_FILE).is_file():
        return _of_folder(folder, str(folder))
    return read_snapshot(folder, None, source=str(folder))


def read_snapshot(folder: Path, revision: str | None, *, source: str) -> Checkpoint | None:
    """Return the checkpoint of a commit (None: the newest) in a model's folder of a cache of the
    hub, None if it is not there.

    Raises:
        InputError: Its files are no checkpoint's; ``source`` names them.
        OSError: A file cannot be read.
    """
    commit = revision or (_text(folder / "refs" / NEWEST, _LONGEST_REFERENCE) or "").strip()
    place = folder / "snapshots" / commit
    if not COMMIT.fullmatch(commit) or not (place / CONFIG_FILE).is_file():
        return None
    return _of_folder(place, source)


def folder_of(cache: Path, model: str) -> Path:
    """Return the folder of a model in a cache of the hub."""
    return cache / f"models--{model.replace('/', '--')}"


def _of_folder(place: Path, source: str) -> Checkpoint:
    texts = {name: _text(place / name, limit) for name, limit in _FILES.items()}
    return _made(texts, _commit_of(place.absolute()), source)


def _fetched(hub: Hub, model: str, revision: str | None, others: tuple[str, ...]) -> Checkpoint:
    asked = Asked(
        endpoint=hub.endpoint,
        model=model,
        revision=revision or NEWEST,
        with_token=hub.token is not None,
    )
    config = _given(hub, asked, CONFIG_FILE)
    if isinstance(config, HubRefusal):
        raise refused(config, asked, CONFIG_FILE)
    commit = config.commit or revision
    if commit is None:
        raise odd_answer(config.host, "does not say which commit its files are of")
    # A mirror without revisions would have another model planned than is served.
    if revision is not None and commit != revision:
        raise odd_answer(config.host, f"gives commit {commit} where {revision} was asked for")
    pinned = replace(asked, revision=commit)
    beside = {name: _beside(hub, pinned, name) for name in others}
    return _made({CONFIG_FILE: _decoded(config.body, CONFIG_FILE, model), **beside}, commit, model)


def _beside(hub: Hub, asked: Asked, file: str) -> str | None:
    answer = _given(hub, asked, file)
    if answer is HubRefusal.NO_FILE:
        return None
    if isinstance(answer, HubRefusal):
        raise refused(answer, asked, file)
    return _decoded(answer.body, file, asked.model)


def _given(hub: Hub, asked: Asked, file: str) -> HubResponse | HubRefusal:
    answer = get(hub, f"{asked.model}/resolve/{asked.revision}/{file}", max_bytes=_FILES[file])
    if answer.status == HTTPStatus.OK:
        return answer
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise busy(answer.host, answer.retry_after_seconds)
    refusal = (
        refusal_of(answer.status, answer.error_code, with_token=asked.with_token)
        if answer.of_hub
        else None
    )
    if refusal is None:
        raise failing(answer.host, answer.status)
    return refusal


def _cached(hub: Hub, model: str, revision: str | None) -> Checkpoint:
    try:
        found = read_snapshot(folder_of(hub.cache, model), revision, source=model)
    except OSError:
        found = None
    if found is None:
        raise not_cached(model, revision or NEWEST, str(hub.cache))
    return found


def _commit_of(place: Path) -> str | None:
    return place.name if place.parent.name == "snapshots" and COMMIT.fullmatch(place.name) else None


def _text(file: Path, max_bytes: int) -> str | None:
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        # One byte over the limit shows that the file is too large.
        raw = opened.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise _invalid(str(file), f"is larger than the limit of {max_bytes} bytes")
    return _decoded(raw, file.name, str(file.parent))


def _decoded(raw: bytes, file: str, source: str) -> str:
    try:
        # Some editors put a byte order mark before the text, which JSON does not allow.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(f"{file} of {source}", f"is not UTF-8 at byte {error.start}") from None


def _made(texts: Mapping[str, str | None], commit: str | None, source: str) -> Checkpoint:
    files = {name: text for name, text in texts.items() if text is not None and name != INDEX_FILE}
    checkpoint = Checkpoint(
        files=files, commit=commit, tensor_bytes=tensor_bytes(texts.get(INDEX_FILE) or "{}")
    )
    parse_config(checkpoint.config_text, source=source)
    return checkpoint


def tensor_bytes(index: str) -> int | None:
    """Return the bytes of all tensors by a checkpoint's index, None if it does not state them.

    >>> (
    ...     tensor_bytes('{"metadata": {"total_size": 16060522496}, "weight_map": {}}'),
    ...     tensor_bytes("[]"),
    ... )
    (16060522496, None)
    """
    try:
        value = json.loads(index)
        total = value["metadata"]["total_size"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return int(total) if isinstance(total, int | float) and 0 < total < LARGEST_BYTES else None


def _invalid(what: str, limit: str) -> InputError:
    return InputError(
        [
            Problem(
                code="ConfigInvalid",
                what=what,
                limit=limit,
                remedy="give the files of the checkpoint as they are",
            )
        ]
    )


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
