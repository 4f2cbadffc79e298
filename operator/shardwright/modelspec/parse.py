"""Is a text a ``config.json``: strict JSON, bounded in size and depth, without duplicate keys?"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from shardwright.errors import InputError, Problem

MAX_CONFIG_BYTES: Final = 1024**2
"""Largest config that is read, with its quantization file; the largest real one (mixed, expert by
expert) has 910 KiB.
"""

CONFIG_FILE: Final = "config.json"

QUANTIZATION_FILE: Final = "hf_quant_config.json"
"""Where older checkpoints of NVIDIA's ModelOpt say how their weights are stored."""

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
    """Return the text of a model's config, joined with a quantization file beside it; None without
    a config.

    The two become one unread JSON object of file name to content;
    :func:`shardwright.modelspec.read.read_model` takes either.

    Args:
        files: Texts by file name, as a folder or a ConfigMap has them.
        name: The config's name among them. Unless it is :data:`CONFIG_FILE` it stands alone: a
            file beside it may belong to another model.
    """
    config, quantization = files.get(name), files.get(QUANTIZATION_FILE)
    if not isinstance(config, str):
        return None
    if not isinstance(quantization, str) or name != CONFIG_FILE:
        return config
    return f'{{"{CONFIG_FILE}": {config}, "{QUANTIZATION_FILE}": {quantization}}}'


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
