"""The tables of TensorRT-LLM's options, made of the lists in ``tests/data/engines``: options of
``trtllm-serve``, keys of its configuration file, and the keys of the objects among them.

Of 1.3 there are only candidates: listed is what stands both before and after them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LISTS: Final = ROOT / "tests/data/engines"
TABLES: Final = ROOT / "operator/shardwright/engines/trtllm/data"

LATER_FLAGS: Final = frozenset(
    {"context_parallel_size", "enable_attention_dp", "kv_cache_dtype", "served_model_name"}
)
"""Options that 1.2 does not take on its command line: the list of options is of a later commit."""

_SERVE: Final = "options of tests/unittest/api_stability/references/trtllm_serve_cli.yaml, main at "
_REFERENCES: Final = "tests/unittest/api_stability/references"
SOURCES: Final = {
    "1.2.0": "TensorRT-LLM: keys of tensorrt_llm/llmapi/llm_args.py (1.2-era); "
    + _SERVE
    + "029e223"
    f", without the four that 1.2 does not take on its command line ({', '.join(sorted(LATER_FLAGS))})"
    "; tests/data/engines/trtllm-*.json",
    "1.3.0": f"TensorRT-LLM: keys that {_REFERENCES}/llm.yaml has both before and after the release "
    "candidates of 1.3; " + _SERVE + "029e223; tests/data/engines/trtllm-llm-args-1.3.json, "
    "trtllm-keys.json and trtllm-serve.json",
    "1.4.0": f"TensorRT-LLM: keys that {_REFERENCES}/llm.yaml has after the release candidates of "
    "1.3; " + _SERVE + "029e223; tests/data/engines/trtllm-llm-args-1.3.json, trtllm-keys.json and "
    "trtllm-serve.json",
}

Row = dict[str, Any]
Kind = str | list[str | None]


def documents() -> dict[Path, str]:
    """Return the tables by the file that each stands in, one option or key a line."""
    return {
        TABLES / f"{name}-{version}.json": text
        for version, source in SOURCES.items()
        for name, text in (("options", _options(version, source)), ("keys", _keys(version)))
    }


def _options(version: str, source: str) -> str:
    rows = ",\n".join(map(json.dumps, _rows(version)))
    head = json.dumps({"engine": "TensorRT-LLM", "version": version, "source": source})
    return f'{head[:-1]}, "options": [\n{rows}\n]}}\n'


def _keys(version: str) -> str:
    source, keys = _between() if version == "1.3.0" else _listed(version.rpartition(".")[0])
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(kind)}" for key, kind in keys.items())
    head = json.dumps({"engine": "TensorRT-LLM", "version": version, "source": source})
    return f'{head[:-1]}, "keys": {{\n{rows}\n}}}}\n'


def _listed(version: str) -> tuple[str, dict[str, Kind]]:
    found = _read("trtllm-keys.json")["versions"][version]
    return found["source"], {
        f"{name}.{key}": kind
        for name, keys in found["objects"].items()
        for key, kind in keys.items()
    }


def _between() -> tuple[str, dict[str, Kind]]:
    """Return the keys of both: objects that came after 1.2 by 1.4, and of the K/V cache those that
    the page of a candidate has.
    """
    (before, old), (after, new) = _listed("1.2"), _listed("1.4")
    page = {
        f"kv_cache_config.{key}" for key in _read("trtllm-llm-args-1.3.json")["kv_cache_config"]
    }
    objects = {key.partition(".")[0] for key in old}
    kept = {
        key: _both(old[key], kind) if key in old and key != _RENAMED else kind
        for key, kind in new.items()
        if key in old
        or key.partition(".")[0] not in objects
        or ".".join(key.split(".")[:2]) in page
    }
    return f"in both: {before}; and {after}", kept


_RENAMED: Final = "speculative_config.decoding_type"
"""1.2 has other names than the later candidates, whose classes are told apart by it."""


def _both(old: Kind, new: Kind) -> Kind:
    if isinstance(old, list) or isinstance(new, list):
        values = [set(kind) for kind in (old, new) if isinstance(kind, list)]
        return [value for value in _first_list(old, new) if all(value in each for each in values)]
    kinds = new.split("|")
    return "|".join(kind for kind in old.split("|") if kind in kinds)


def _first_list(old: Kind, new: Kind) -> list[str | None]:
    return old if isinstance(old, list) else new if isinstance(new, list) else []


def _rows(version: str) -> list[Row]:
    served = {
        option["dest"]: option
        for option in _read("trtllm-serve.json")["options"]
        if version != "1.2.0" or option["dest"] not in LATER_FLAGS
    }
    keys = _top_keys(version)
    named = {key["key"] for key in keys}
    return [
        *(_row(key["key"], served.get(key["key"], {}), key) for key in keys),
        *(_row(name, served[name], {}) for name in sorted(set(served) - named)),
    ]


def _top_keys(version: str) -> list[Mapping[str, Any]]:
    further = _read("trtllm-keys.json")["versions"]
    if version == "1.2.0":
        listed = [_of_1_2(key) for key in _read("trtllm-llm-args.json")["keys"]]
        return [*listed, *_further(further["1.2"]["keys"])]
    listed = list(_read("trtllm-llm-args-1.3.json")["keys"])
    return [*listed, *(_further(further["1.4"]["keys"]) if version == "1.4.0" else ())]


def _further(keys: Mapping[str, Kind]) -> list[Row]:
    return [
        {"key": key, "type": "str", "choices": kind}
        if isinstance(kind, list)
        else {"key": key, "type": kind}
        for key, kind in keys.items()
    ]


def _of_1_2(key: Mapping[str, Any]) -> Row:
    """Return a key with its type in a word: of several types the first, for values ``str``."""
    types = [kind for kind in key["type"].split("|") if kind != "null"]
    if types[0] in ("str", "int", "float", "bool"):
        return {"key": key["key"], "type": types[0]}
    if (types[0].islower() is False and len(types) == 1) or types[0].startswith(("dict", "list")):
        return {"key": key["key"], "type": "object"}
    return {"key": key["key"], "type": "str", "choices": types}


def _read(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((LISTS / name).read_text("utf-8"))
    return found


def _row(name: str, option: Mapping[str, Any], key: Mapping[str, Any]) -> Row:
    kind = key.get("type") or ("str" if option["type"] == "choice" else option["type"])
    choices = option.get("choices") or key.get("choices")
    row: Row = {"flags": _flags(name, option), "type": kind}
    if key:
        row["key"] = name
    if choices:
        row["choices"] = choices
    if kind == "bool":
        row["nargs"] = 0
    return row


def _flags(name: str, option: Mapping[str, Any]) -> list[str]:
    """Return the spellings, the one by which the policy goes first."""
    flags = option.get("flags") or [f"--{name}"]
    return sorted(flags, key=lambda flag: flag not in {f"--{name}", "--config"})
