"""What the release says of itself: its section of the changelog, and what an upgrade changes,
worked out from the files.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from release.places import CHART, ROOT, VERSION

_CRD: Final = "crds/shardwright.io_shardedmodels.yaml"
_VALUES: Final = "charts/shardwright/values.yaml"


def write(out: Path) -> None:
    """Write the notes."""
    (out / "NOTES.md").write_text(
        f"# shardwright {VERSION}\n\n{section(VERSION)}\n\n## Upgrading\n\n{upgrading()}\n"
    )


def section(version: str) -> str:
    """Return what the changelog says of a version."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(
        rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def upgrading() -> str:
    """Return how values of the chart and fields of the CRD differ from those of the tag before."""
    done = subprocess.run(
        [
            "git",
            "-C",
            str(ROOT),
            "describe",
            "--tags",
            "--abbrev=0",
            "--match=v*",
            f"--exclude=v{VERSION}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return "This is the first release: there is nothing to upgrade from."
    before = done.stdout.strip()
    values = changes(_at(before, _VALUES), yaml.safe_load((CHART / "values.yaml").read_text()))
    fields = changes(_fields(_at(before, _CRD)), _fields(yaml.safe_load((ROOT / _CRD).read_text())))
    parts = [
        f"### {title}\n\n{told or 'Unchanged.'}"
        for title, told in (("Values of the chart", values), ("Fields of ShardedModel", fields))
    ]
    return "\n\n".join([f"From {before}:", *parts])


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what is new, gone or has another value, a line each, by its path.

    >>> print(changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": []}))
    - new: `d` (`[]`)
    - gone: `a.c` (`2`)
    - changed: `a.b` (`1` to `3`)
    """
    old, new = dict(_leaves(before, "")), dict(_leaves(now, ""))
    lines = [f"- new: `{path}` (`{new[path]}`)" for path in new if path not in old]
    lines += [f"- gone: `{path}` (`{old[path]}`)" for path in old if path not in new]
    lines += [
        f"- changed: `{path}` (`{old[path]}` to `{new[path]}`)"
        for path in new
        if path in old and old[path] != new[path]
    ]
    return "\n".join(lines)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _fields(crd: Mapping[str, Any]) -> dict[str, Any]:
    """The types of all fields, by version."""
    return {
        version["name"]: _types(version["schema"]["openAPIV3Schema"])
        for version in crd["spec"]["versions"]
    }


def _types(schema: Mapping[str, Any]) -> Any:
    inner = schema.get("properties") or (schema.get("items") or {}).get("properties")
    return (
        {name: _types(child) for name, child in inner.items()}
        if inner
        else schema.get("type", "any")
    )


def _at(tag: str, path: str) -> Any:
    text = subprocess.run(
        ["git", "-C", str(ROOT), "show", f"{tag}:{path}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return yaml.safe_load(text)
