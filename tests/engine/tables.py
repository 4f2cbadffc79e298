"""What each version of the engine says of itself, by its wheel: written, and compared.

What planning reads ships with it. The rest lies among the tests: what a rule of our own is held to,
and digests of what was read and not called.
"""

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

_ROOT = Path(__file__).parents[2]
_PLANNED = _ROOT / "operator/shardwright/engines/vllm/data"
_HELD = _ROOT / "tests/data/engines"
_READ_BY_PLANNING = ("architectures", "refines", "uncut", "drafters", "rows")
_READ_BY_TESTS = ("schemes", "read")
_PROGRAM = Path(__file__).parent / "backends.py"
_LOG_TAIL = 2000


def write(versions: Iterable[str]) -> None:
    """Ask the wheels and write a table for each.

    Raises:
        HarnessError: A version is not in the environment, or its wheel does not answer.
    """
    engine = environment.install()
    for version in versions:
        table = asked(engine, version)
        for file, names in _files(version).items():
            file.write_text(_shown({name: table[name] for name in names}))


def written(version: str) -> Table:
    """Return the table of a version as it was written."""
    table: Table = {}
    for file in _files(version):
        table |= json.loads(file.read_text())
    return table


def _files(version: str) -> dict[Path, tuple[str, ...]]:
    """Return the files of a version, each with what it holds."""
    return {
        _PLANNED / f"contract-{version}.json": _READ_BY_PLANNING,
        _HELD / f"contract-{version}.json": _READ_BY_TESTS,
    }


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
        f"{kind}, heads of {head}, K/V {row['cache']}, {row['selected']} selected": row["backends"]
        for row in table["rows"]
        for kind in row["kinds"]
        for head in row["heads"]
    }
    lists = {name: value for name, value in table.items() if name not in ("rows", "read")}
    return {**rows, **table["read"], **lists}


def _shown(table: Table) -> str:
    """A row a line, so that a change of one is a line of a diff."""
    parts = ",\n".join(f" {json.dumps(name)}: {_lines(value)}" for name, value in table.items())
    return f"{{\n{parts}\n}}\n"


def _lines(value: Any) -> str:
    rows = isinstance(value, list) and all(isinstance(row, dict) for row in value)
    lines = ",\n  ".join(map(json.dumps, value)) if rows else ""
    if isinstance(value, dict):
        lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(it)}" for name, it in value.items())
    opening, closing = json.dumps(value)[0], json.dumps(value)[-1]
    return f"{opening}\n  {lines}\n {closing}" if lines else json.dumps(value)
