"""Is a text a ``config.json``: strict JSON, bounded in size and depth, without duplicate keys?

Is each field of a config there, of the right type and within bounds? All problems are collected.

A wrong value is refused and read as a harmless one, so nothing behind it raises.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, TypeVar

from shardwright.errors import InputError, Problem

MAX_CONFIG_BYTES: Final = 4 * 1024**2
"""Largest config that is read, with its quantization file. Basis: chosen; lists of layers expert by
expert take several MiB, and reading as much takes less than a second of CPU.
"""

CONFIG_FILE: Final = "config.json"

QUANTIZATION_FILE: Final = "hf_quant_config.json"
"""Where older checkpoints of NVIDIA's ModelOpt say how their weights are stored."""

INDEX_FILE: Final = "model.safetensors.index.json"
"""Names the file of each tensor, and the size of all. A checkpoint of a single file has none."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""What `zlib` calls gzip."""

MAX_CONFIG_DEPTH: Final = 32
"""Deepest nesting that is read; real configs stay below 8."""


def parse_config(text: str, *, source: str) -> dict[str, object]:
    """Return one JSON object; ``Infinity`` and ``1e-05`` are taken, because real configs hold them.

    Raises:
        InputError: too large, not JSON, a duplicate key, NaN, too deep, or not an object.
    """
    # The size bounds what parsing costs. A lone surrogate must not raise here.
    if len(text.encode(errors="surrogatepass")) > MAX_CONFIG_BYTES:
        raise _invalid(
            source,
            "is larger",
            f"than the limit of {MAX_CONFIG_BYTES} bytes",
            "give the config.json alone",
        )
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise _invalid(
            source, "is not the JSON of a config:", _reason(error), "give the file as it is"
        ) from error
    if not isinstance(value, dict):
        raise _invalid(
            source,
            f"holds a {type(value).__name__}",
            "where an object belongs",
            "give the file as it is",
        )
    check_depth(value, source=source)
    return value


def folder_text(files: Mapping[str, object], name: str = CONFIG_FILE) -> str | None:
    """Return the text of a model's config, joined with a quantization file and an index beside it;
    None without a config.

    They become one unread JSON object of file name to content;
    :func:`shardwright.modelspec.read.read_model` takes either.

    Args:
        files: Texts by file name, as a folder or a ConfigMap has them.
        name: The config's name among them. Unless it is :data:`CONFIG_FILE` it stands alone: a
            file beside it may belong to another model.
    """
    config = files.get(name)
    if not isinstance(config, str):
        return None
    beside = {
        other: text
        for other in (QUANTIZATION_FILE, INDEX_FILE)
        if name == CONFIG_FILE and isinstance(text := files.get(other), str)
    }
    if not beside:
        return config
    joined = ", ".join(f'"{file}": {text}' for file, text in {name: config, **beside}.items())
    return f"{{{joined}}}"


def config_map_text(content: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a model's config in a ConfigMap, as :func:`folder_text` does.

    A ConfigMap holds 1 MiB at most. What is larger is there as gzip, in ``binaryData``, where
    ``kubectl create configmap --from-file`` puts it.
    """
    plain, packed = content.get("data") or {}, content.get("binaryData") or {}
    files = (name, QUANTIZATION_FILE, INDEX_FILE)
    return folder_text(
        {**plain, **{file: _unpacked(packed[file]) for file in files if file in packed}}, name
    )


def _unpacked(encoded: str) -> str:
    # What is no gzip is no config either: whoever parses it says so.
    raw = base64.b64decode(encoded)
    with suppress(zlib.error):
        # A byte more than is read, so that a larger one is refused as such.
        raw = zlib.decompressobj(_GZIP).decompress(raw, MAX_CONFIG_BYTES + 1)
    return raw.decode(errors="replace")


def check_depth(config: Mapping[str, object], *, source: str) -> None:
    """Refuse a config that is nested deeper than any real one.

    Raises:
        InputError: deeper than :data:`MAX_CONFIG_DEPTH`.
    """
    level: list[object] = [config]
    for _ in range(MAX_CONFIG_DEPTH):
        level = [child for value in level for child in _containers(value)]
        if not level:
            return
    raise _invalid(
        source, "is nested", f"deeper than {MAX_CONFIG_DEPTH} levels", "give the config.json alone"
    )


def _containers(value: object) -> Iterable[object]:
    children = (
        value.values()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return (child for child in children if isinstance(child, Mapping | list | tuple))


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key[:80]!r} stands there twice")
        result[key] = value
    return result


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is not a value")
    return float(name.replace("Infinity", "inf"))


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def _invalid(source: str, what: str, limit: str, remedy: str) -> InputError:
    return InputError(
        [Problem(code="ConfigInvalid", what=f"{source} {what}", limit=limit, remedy=remedy)]
    )


#: Bounds that no real model comes near, so that a hostile config costs no more than a real one.
LAYERS: Final = (1, 1024)
HEADS: Final = (1, 4096)
HEAD_DIM: Final = (1, 8192)
WIDTH: Final = (1, 1 << 20)
VOCABULARY: Final = (1, 1 << 24)
EXPERTS: Final = (1, 8192)
CONTEXT: Final = (1, 1 << 30)
KERNEL: Final = (1, 64)
STREAMS: Final = (1, 64)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Bounds = tuple[int, int]
_T = TypeVar("_T")

_LONGEST_SHOWN: Final = 60
_LONGEST_INTEGER_BITS: Final = 64


class Fields:
    """A config that is being read; ``problems`` grows, and reading goes on with a harmless value.

    ``spelled`` has the config's own names of some fields, for the paths of problems.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        path: str = "",
        problems: list[Problem] | None = None,
        spelled: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.values = values
        self.path = path
        self.spelled = spelled
        self.problems: list[Problem] = [] if problems is None else problems

    def integer(self, name: str, bounds: Bounds, *, default: int | None = None) -> int:
        """Return a whole number within bounds; without a default it must be there."""
        value = self.values.get(name)
        if value is None:
            return self._missing(name, bounds) if default is None else default
        # True is an int to Python.
        if isinstance(value, bool) or not isinstance(value, int):
            return self._refuse(name, _shown(value), "must be a whole number", bounds[0])
        if not bounds[0] <= value <= bounds[1]:
            return self._refuse(
                name, _shown(value), f"must be {bounds[0]} to {bounds[1]}", bounds[0]
            )
        return value

    def optional_integer(self, name: str, bounds: Bounds) -> int | None:
        """Return a whole number within bounds, or None if the field is missing or null."""
        return None if self.values.get(name) is None else self.integer(name, bounds)

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false; without the field, the default."""
        value = self.values.get(name)
        if value is None:
            return default
        return (
            value
            if isinstance(value, bool)
            else self._refuse(name, _shown(value), "must be true or false", default)
        )

    def string(self, name: str) -> str | None:
        """Return a text, or None if the field is missing or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        return self._refuse(name, _shown(value), "must be a text", None)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, empty if the field is missing or null."""
        return tuple(item for item in self._list(name, str, "texts") if isinstance(item, str))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty if the field is missing or null."""
        return tuple(
            item for item in self._list(name, int, "whole numbers") if isinstance(item, int)
        )

    def section(self, name: str) -> "Fields | None":
        """Return the object under a field, or None if the field is missing or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            return self._refuse(name, _shown(value), "must be an object", None)
        return Fields(value, f"{self.path}{name}.", self.problems)

    def sections(self, name: str) -> "tuple[Fields, ...]":
        """Return a list of objects, empty if the field is missing or null."""
        items = self._list(name, Mapping, "objects")
        return tuple(
            Fields(item, f"{self.path}{name}[{index}].", self.problems)
            for index, item in enumerate(items)
            if isinstance(item, Mapping)
        )

    def refuse(self, name: str, what: str, limit: str = "", remedy: str = "") -> None:
        """Note a problem of one field."""
        path = f"{self.path}{self.spelled.get(name, name)}"
        self.problems.append(
            Problem(code="ConfigInvalid", what=what, limit=limit, remedy=remedy, path=path)
        )

    def _missing(self, name: str, bounds: Bounds) -> int:
        self.refuse(name, "missing", remedy=f"give a whole number, {bounds[0]} to {bounds[1]}")
        return bounds[0]

    def _refuse(self, name: str, what: str, limit: str, instead: _T) -> _T:
        self.refuse(name, what, limit)
        return instead

    def _list(self, name: str, item: type[object], noun: str) -> list[object]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or any(
            # True is an int to Python.
            isinstance(entry, bool) or not isinstance(entry, item)
            for entry in value
        ):
            return self._refuse(name, _shown(value), f"must be a list of {noun}", [])
        return list(value)


def _shown(value: object) -> str:
    # Python refuses to print an int of more than 4,300 digits.
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER_BITS:
        return "a very large number"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
