"""What planning reads of each version of the engine, as its wheel says it: written, and compared."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.engine import environment
from tests.engine.checker import PREFIX
from tests.engine.questions import QUIET
from tests.harness.errors import HarnessError

Table = dict[str, Any]

DATA = Path(__file__).parents[2] / "operator" / "shardwright" / "engines" / "vllm" / "data"
_PROGRAM = Path(__file__).parent / "backends.py"
_LOG_TAIL = 2000


def write(versions: Iterable[str]) -> None:
    """Ask the wheels and write a table for each.

    Raises:
        HarnessError: A version is not in the environment, or its wheel does not answer.
    """
    engine = environment.install()
    for version in versions:
        file(version).write_text(_shown(asked(engine, version)))


def file(version: str) -> Path:
    """Return where the table of a version is."""
    return DATA / f"contract-{version}.json"


def written(version: str) -> Table:
    """Return the table of a version as it was written."""
    table: Table = json.loads(file(version).read_text())
    return table


def asked(engine: environment.Environment, version: str) -> Table:
    """Return the table of a version as its wheel says it."""
    done = subprocess.run(
        [str(engine.python), str(_PROGRAM)],
        env={**os.environ, **QUIET, **engine.variables(version)},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(PREFIX):
            table: Table = json.loads(line.removeprefix(PREFIX))
            return table
    raise HarnessError(f"vLLM {version} did not answer: {done.stderr[-_LOG_TAIL:]}")


def differences(found: Table, table: Table) -> Iterator[str]:
    """Yield what a table says otherwise than the wheel, each row by its name."""
    wheel, ours = _named(found), _named(table)
    for name in sorted(wheel.keys() | ours.keys()):
        if wheel.get(name) != ours.get(name):
            yield f"{name}: {wheel.get(name)} in the wheel, {ours.get(name)} in the table"


def _named(table: Table) -> dict[str, Any]:
    rows: dict[str, Any] = {
        f"{row['kind']}, heads of {head}, K/V {row['cache']}, {row['selected']} selected": row[
            "backends"
        ]
        for row in table["rows"]
        for head in row["heads"]
    }
    lists = {name: value for name, value in table.items() if name not in ("rows", "read")}
    return {**rows, **table["read"], **lists}


def _shown(table: Table) -> str:
    """A row a line, so that a change of one is a line of a diff."""
    rows = ",\n  ".join(json.dumps(row) for row in table["rows"])
    read = ",\n  ".join(
        f"{json.dumps(name)}: {json.dumps(it)}" for name, it in table["read"].items()
    )
    lists = "".join(
        f" {json.dumps(name)}: {json.dumps(value)},\n"
        for name, value in table.items()
        if name not in ("rows", "read")
    )
    return f'{{\n{lists} "rows": [\n  {rows}\n ],\n "read": {{\n  {read}\n }}\n}}\n'
