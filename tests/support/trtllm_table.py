"""The table of TensorRT-LLM 1.3's options, made of the two lists in ``tests/data/engines``: options
of ``trtllm-serve`` and keys of its configuration file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LISTS: Final = ROOT / "tests/data/engines"
TABLES: Final = ROOT / "operator/shardwright/engines/trtllm/data"
VERSION: Final = "1.3.0"
SOURCE: Final = (
    "TensorRT-LLM: keys that tests/unittest/api_stability/references/llm.yaml has both before and "
    "after the release candidates of 1.3; options of references/trtllm_serve_cli.yaml, main at "
    "029e223; tests/data/engines/trtllm-llm-args-1.3.json and trtllm-serve.json"
)

Row = dict[str, Any]


def documents() -> dict[Path, str]:
    """Return the table by the file that it stands in, one option a line."""
    rows = ",\n".join(map(json.dumps, _rows()))
    head = json.dumps({"engine": "TensorRT-LLM", "version": VERSION, "source": SOURCE})
    text = f'{head[:-1]}, "options": [\n{rows}\n]}}\n'
    return {TABLES / f"options-{VERSION}.json": text}


def _rows() -> list[Row]:
    served = {option["dest"]: option for option in _read("trtllm-serve.json", "options")}
    keys = _read("trtllm-llm-args-1.3.json", "keys")
    named = {key["key"] for key in keys}
    return [
        *(_row(key["key"], served.get(key["key"], {}), key) for key in keys),
        *(_row(name, served[name], {}) for name in sorted(set(served) - named)),
    ]


def _read(name: str, part: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = json.loads((LISTS / name).read_text("utf-8"))[part]
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
