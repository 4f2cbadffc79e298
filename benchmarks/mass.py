"""`python -m benchmarks.mass`: how much there is to read, by room; `--keep NAME` adds a row to
mass.csv, which has one for each landed state.

What a first plan runs is counted from a new ShardedModel of two nodes to its first StatefulSet, on
an API server in memory.
"""

import argparse
import ast
import asyncio
import csv
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import quantiles
from types import FrameType
from typing import Final

import grimp

from tests.support.builders_operator import LARGE, Parts

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "operator" / "shardwright"
KEPT: Final = Path(__file__).with_name("mass.csv")
TESTS: Final = ("tests", "benchmarks", "release", "conftest.py")
DATA: Final = (".csv", ".json", ".j2", ".sh", ".txt", ".html", ".css", ".js", ".svg")
COMPLEXITY: Final = "C901,PLR0911,PLR0912,PLR0915,PLR1702"
MOST_PARAMETERS: Final = 5
RESUMED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Functions that are called more often than they are written down: left out of a first plan."""

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Mass:
    """What modules of Python hold; ``bodies`` are the statements of each function."""

    modules: int = 0
    lines: int = 0
    code_lines: int = 0
    nodes: int = 0
    statements: int = 0
    docstring_words: int = 0
    wide: int = 0
    bodies: list[int] = field(default_factory=list)

    def read(self, text: str) -> None:
        tree = ast.parse(text)
        docstrings = [it for node in ast.walk(tree) for it in _docstring(node)]
        prose = {
            number
            for it in docstrings
            for number in range(it.lineno, (it.end_lineno or it.lineno) + 1)
        }
        lines = text.splitlines()
        self.modules += 1
        self.lines += len(lines)
        self.code_lines += sum(
            bool(line.strip()) and line.lstrip()[0] != "#" and number not in prose
            for number, line in enumerate(lines, 1)
        )
        self.docstring_words += sum(len(ast.unparse(it).split()) for it in docstrings)
        self.statements += _statements(tree)
        self.nodes += sum(not isinstance(it, ast.expr_context) for it in ast.walk(tree))
        for it in ast.walk(tree):
            if isinstance(it, FUNCTION):
                self.bodies.append(_statements(it) - 1)
                self.wide += _parameters(it.args) > MOST_PARAMETERS


def _docstring(node: ast.AST) -> Iterator[ast.Expr]:
    """Yield a docstring, also one below an assignment."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            yield node


def _statements(tree: ast.AST) -> int:
    return sum(isinstance(it, ast.stmt) and not [*_docstring(it)] for it in ast.walk(tree))


def _parameters(given: ast.arguments) -> int:
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(it.arg not in ("self", "cls") for it in named)


def by_room() -> dict[str, Mass]:
    rooms: dict[str, Mass] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        first, *rest = path.relative_to(PACKAGE).parts
        text = path.read_text()
        for room in ("package", first if rest else "loose files"):
            rooms.setdefault(room, Mass()).read(text)
    return rooms


@cache
def _tracked() -> tuple[Path, ...]:
    words = ["git", "ls-files"]
    listed = subprocess.check_output(words, cwd=ROOT, text=True)
    return tuple(Path(name) for name in listed.splitlines() if (ROOT / name).is_file())


def _lines(suffixes: Iterable[str], *folders: str) -> int:
    return sum(
        (ROOT / it).read_bytes().count(b"\n")
        for it in _tracked()
        if it.suffix in suffixes and any(it.is_relative_to(top) for top in folders)
    )


def longest_chain() -> int:
    """Return how many modules the longest chain of imports has."""
    graph = grimp.build_graph("shardwright")

    @cache
    def chain(module: str) -> int:
        below = graph.find_modules_directly_imported_by(module)
        return 1 + max((chain(it) for it in below), default=0)

    return max(chain(it) for it in graph.modules)


def arrows() -> int:
    """Return how many pairs of rooms there are of which one imports the other."""
    graph = grimp.build_graph("shardwright")
    found = {
        (above.split(".")[1], below.split(".")[1])
        for above in graph.modules
        for below in graph.find_modules_directly_imported_by(above)
        if above.count(".") and below.count(".")
    }
    return sum(above != below for above, below in found)


def first_plan() -> tuple[int, int]:
    """Return how many functions of how many modules run until the first StatefulSet is written."""
    return asyncio.run(_first_plan())


async def _first_plan() -> tuple[int, int]:
    ran: set[tuple[str, str]] = set()
    counted: list[tuple[int, int]] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        counts = code.co_name[0] != "<" and not code.co_flags & RESUMED
        if event == "call" and counts and code.co_filename.startswith(str(PACKAGE)):
            ran.add((code.co_filename, code.co_name))

    async def before(verb: str, plural: str) -> None:
        if plural == "statefulsets" and verb not in ("get", "list"):
            counted.append((len(ran), len({module for module, _ in ran})))

    parts = Parts()
    parts.add_nodes(2)
    await parts.sync()
    key = parts.add_model("large", model=LARGE)
    parts.api.before = before
    sys.setprofile(note)
    await parts.reconcile(key)
    sys.setprofile(None)
    return counted[0]


def too_complex() -> int:
    words = ["ruff", "check", "--isolated", "--select", COMPLEXITY, "--preview"]
    found = subprocess.run(
        [sys.executable, "-m", *words, "--output-format", "json", PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    return len(json.loads(found.stdout))


def figures(package: Mass) -> dict[str, float]:
    """Return what a row of mass.csv holds beside its name."""
    functions, modules = first_plan()
    parts = quantiles(package.bodies, n=10)
    return {
        "lines": package.lines,
        "statements": package.statements,
        "modules": package.modules,
        "docstring_words": package.docstring_words,
        "longest_chain": longest_chain(),
        "arrows_between_rooms": arrows(),
        "first_plan_functions": functions,
        "first_plan_modules": modules,
        "function_statements_p50": parts[4],
        "function_statements_p90": parts[8],
        "function_statements_most": max(package.bodies),
        "nodes_a_code_line": round(package.nodes / package.code_lines, 2),
        "functions_over_5_parameters": package.wide,
        "too_complex": too_complex(),
        "test_lines": _lines([".py"], *TESTS),
        "document_words": sum(
            len((ROOT / it).read_text().split()) for it in _tracked() if it.suffix == ".md"
        ),
        "package_data_lines": _lines(DATA, "operator"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="NAME", help="add a row of this name")
    parser.add_argument("--ci-minutes", default="", help="that .ci/run has taken")
    asked = parser.parse_args()
    rooms = by_room()
    print(f"{'room':14} modules   lines  statements  docstring words")
    for name, it in sorted(rooms.items(), key=lambda item: -item[1].lines):
        print(f"{name:14} {it.modules:7} {it.lines:7} {it.statements:11} {it.docstring_words:16}")
    rows = [*csv.DictReader(KEPT.open())] if KEPT.exists() else []
    row = {
        "state": asked.keep or "now",
        **figures(rooms["package"]),
        "ci_minutes": asked.ci_minutes,
    }
    print()
    for name, value in row.items():
        print(f"{name:30}", *(f"{it.get(name, ''):>16}" for it in rows[-3:]), value)
    if asked.keep:
        with KEPT.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*row], lineterminator="\n")
            writer.writeheader()
            writer.writerows([*rows, row])


if __name__ == "__main__":
    main()
