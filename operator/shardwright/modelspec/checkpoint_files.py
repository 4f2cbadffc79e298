"""How does a pod without rights in the cluster hand over what it has read of a checkpoint from the
hub?

The kubelet puts the termination message of each container into the pod's status, 4096 bytes at
most. Configs are JSON that repeats itself: compressed, nearly all fit in one.
"""

import json
import lzma
from base64 import b85decode, b85encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.config_json import (
    CONFIG_FILE,
    INDEX_FILE,
    QUANTIZATION_FILE,
    folder_text,
    parse_config,
)

MESSAGE_BYTES: Final = 4096
"""Of a container's termination message. Source: Kubernetes 1.36
``pkg/kubelet/container/runtime.go`` (MaxContainerTerminationMessageLength); all containers of a pod
together have 12 KiB.
"""

MESSAGES: Final = 2
"""How many containers leave one. Basis: measured, of 45 published configs of October 2026 the
largest (540 KiB, mixed precision by layer) takes 5.5 KiB, the next 3.9.
"""

CONFIG_MAP_BYTES: Final = 1024**2
"""Largest text that is believed: it becomes a ConfigMap, which holds no more."""

_CONFIG: Final = "shardwright/1 config "
_PROBLEM: Final = "shardwright/1 problem "

_LZMA: Final = [
    {
        "id": lzma.FILTER_LZMA2,
        "preset": 9 | lzma.PRESET_EXTREME,
        "dict_size": CONFIG_MAP_BYTES,
        "lc": 2,
        "lp": 0,
        "pb": 0,
    }
]
"""Both ends agree on it, so nothing that is read says how much memory to take. Measured on the
largest of these configs: half of the bytes that the usual preset leaves, for it looks for longer
repetitions; ``lc`` and ``pb`` bring 2 to 3% more.
"""

_TEXT_MAX: Final = 512
"""Characters of each part of a problem that is believed. Basis: assumed; ours are shorter."""

LARGEST_BYTES: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """A checkpoint's small files by name, its commit, and its index' bytes of all tensors (None: no
    index).
    """

    files: Mapping[str, str]
    commit: str | None = None
    tensor_bytes: int | None = None


def index_of(tensor_bytes: int | None) -> dict[str, str]:
    """Return a checkpoint's index by its name as it is kept: sizes without the names of tensors.

    >>> index_of(16060522496)
    {'model.safetensors.index.json': '{"metadata": {"total_size": 16060522496}}'}
    """
    return (
        {}
        if tensor_bytes is None
        else {INDEX_FILE: json.dumps({"metadata": {"total_size": tensor_bytes}})}
    )


def handed_over(checkpoint: CheckpointFiles) -> str:
    """Return the text to leave, at most :data:`MESSAGES` times :data:`MESSAGE_BYTES` characters of
    ASCII.

    Raises:
        InputError: It is more.
    """
    content = {
        "commit": checkpoint.commit,
        "tensorBytes": checkpoint.tensor_bytes,
        "files": {name: json.loads(text) for name, text in checkpoint.files.items()},
    }
    packed = lzma.compress(_compact(content).encode(), format=lzma.FORMAT_RAW, filters=_LZMA)
    text, most = _CONFIG + b85encode(packed).decode(), MESSAGES * MESSAGE_BYTES
    if len(text) > most:
        what, limit = (
            f"the config has {len(text):,} bytes when it is compressed",
            f"and a pod can hand over {most:,}",
        )
        raise InputError([Problem(code="ConfigNotHandedOver", what=what, limit=limit)])
    return text


def problem_handed_over(problem: Problem) -> str:
    """Return the text to leave without a checkpoint; the reader, who knows the resource, adds the
    remedy.
    """
    return _PROBLEM + json.dumps(
        [problem.code, problem.what[:_TEXT_MAX], problem.limit[:_TEXT_MAX]]
    )


def read_handover(text: str) -> CheckpointFiles | Problem:
    """Return what a text says; anyone who may write pods may have written it, so any text is
    taken.
    """
    if text.startswith(_PROBLEM):
        return _read_problem(text.removeprefix(_PROBLEM))
    if not text.startswith(_CONFIG):
        return _invalid("does not begin as one of ours")
    try:
        return _read(text.removeprefix(_CONFIG))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        lzma.LZMAError,
        RecursionError,
    ):
        # Our pod writes only a config that it has read, so this text is not its own, or damaged.
        return _invalid("is damaged")


def _read_problem(text: str) -> Problem:
    try:
        code, what, limit = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return _invalid("is damaged")
    if not all(isinstance(part, str) and len(part) <= _TEXT_MAX for part in (code, what, limit)):
        return _invalid("is damaged")
    return Problem(code=code, what=what, limit=limit)


def _read(text: str) -> CheckpointFiles:
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_LZMA)
    # Bounded while it is unpacked: a few kilobytes can hold gigabytes of zeros.
    raw = decoder.decompress(b85decode(text), max_length=CONFIG_MAP_BYTES)
    content = parse_config(raw.decode(), source="what the pod has left")
    files = _files(content["files"])
    parse_config(folder_text(files) or "", source=CONFIG_FILE)
    return CheckpointFiles(
        files=files,
        commit=_commit(content.get("commit")),
        tensor_bytes=_bytes(content.get("tensorBytes")),
    )


def _files(value: Any) -> dict[str, str]:
    return {
        name: _readable(value[name]) for name in (CONFIG_FILE, QUANTIZATION_FILE) if name in value
    }


def _readable(value: object) -> str:
    text = json.dumps(value, indent=1)
    return text if len(text) <= CONFIG_MAP_BYTES // 2 else _compact(value)


def _commit(value: object) -> str | None:
    digits = value if isinstance(value, str) else ""
    return (
        digits if len(digits) == 40 and set(digits) <= set("0123456789abcdef") else None  # noqa: PLR2004 - a SHA-1
    )


def _bytes(value: object) -> int | None:
    return value if type(value) is int and 0 < value < LARGEST_BYTES else None


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _invalid(limit: str) -> Problem:
    return Problem(code="ConfigFetchFailed", what="what the pod has left", limit=limit)
