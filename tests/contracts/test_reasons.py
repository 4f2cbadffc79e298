"""Every reason that the code can give is explained once, under its own name, and nothing else
is.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shardwright.api.conditions import Reason
from shardwright.api.rules import RULES
from shardwright.modelspec.families import FAMILIES
from shardwright.planning.phrases import PHRASES
from shardwright.planning.shapes import SHAPE_REASONS

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "operator" / "shardwright"
WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
HEADING = re.compile(r"^### (\S+)\n", re.MULTILINE)
LONGEST_PARAGRAPH = 8  # lines of 120 columns

PASSED_ON = {
    "api/admission.py: code",
    "api/plan_status.py: item.code",
    "api/rules.py: rule.code",
    "modelspec/checkpoint_files.py: code",
    "planning/checks.py: code",
    "planning/engine_limits.py: code",
    "planning/missed.py: _CODES[found.capability]",
    "planning/no_plan.py: code",
    "planning/pairing.py: code",
    "planning/shapes.py: code",
}
"""Where a code comes from a variable: what it can be is found in tables, loops and arguments. A new
place must be, too.
"""


def test_every_reason_has_a_paragraph() -> None:
    assert sorted(_given() - set(_explained())) == []


def test_no_paragraph_is_left_over_and_none_stands_twice() -> None:
    explained = _explained()

    assert sorted(set(explained) - _given()) == []
    assert len(explained) == len(set(explained))


def test_every_paragraph_says_something_and_stays_short() -> None:
    paragraphs = dict(zip(HEADING.split(_page())[1::2], HEADING.split(_page())[2::2], strict=True))
    lengths = {
        word: len(text.split("\n## ")[0].strip().splitlines()) for word, text in paragraphs.items()
    }

    assert {
        word: count for word, count in lengths.items() if not 2 <= count <= LONGEST_PARAGRAPH
    } == {}


def test_every_architecture_that_can_be_counted_is_listed_and_no_other() -> None:
    listed = (ROOT / "docs" / "reference" / "architectures.md").read_text().split("\n\n")[2]

    assert listed.rstrip(".").replace("\n", " ").split(", ") == sorted(FAMILIES)


def test_words_about_reasons_are_about_reasons_that_are_given() -> None:
    assert sorted((set(PHRASES) | set(SHAPE_REASONS)) - _written()) == []


def test_codes_from_variables_come_from_known_places() -> None:
    assert set(_passed_on()) == PASSED_ON


def _page() -> str:
    pages = ("reasons.md", "reference/reasons-of-input.md")
    texts = ((ROOT / "docs" / page).read_text() for page in pages)
    return "\n## ".join(text.partition("\n## ")[2] for text in texts)


def _explained() -> list[str]:
    return HEADING.findall(_page())


def _given() -> set[str]:
    return _written() | set(Reason) | {rule.code for rule in RULES} | set(SHAPE_REASONS)


@cache
def _written() -> set[str]:
    """Return the codes of problems, and the reasons of events and of failed members, that are
    written out in the code.
    """
    return {
        word for name, tree in _modules() for word in _words(name, tree) if WORD.fullmatch(word)
    }


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def _words(name: str, tree: ast.Module) -> Iterator[str]:
    yield from _of_keywords(tree, "code")
    yield from _of_tables(tree)
    yield from _of_arguments(tree)
    yield from _of_loops(tree)
    if name.startswith(
        "reconcile/"
    ):  # elsewhere `reason` is a word of HTTP or a field of a log line
        yield from _of_keywords(tree, "reason")


def _of_keywords(tree: ast.AST, keyword: str) -> Iterator[str]:
    """Yield the texts in the values of a keyword argument: ``code="A" if busy else "B"``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == keyword:
            yield from _texts(node.value)


def _of_tables(tree: ast.Module) -> Iterator[str]:
    """Yield the texts in the tables of a module that codes are taken from: ``code=TABLE[key]``."""
    names = {
        node.value.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "code"
        and isinstance(node.value, ast.Subscript)
        and isinstance(node.value.value, ast.Name)
    }
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id in names
            and node.value is not None
        ):
            yield from _texts(node.value)


def _of_arguments(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that stand in place of a function's parameter ``code``."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    places = {
        one.name: index
        for one in functions
        for index, place in enumerate(one.args.args)
        if place.arg == "code"
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in places
        ):
            yield from (
                text for word in node.args[places[node.func.id] :][:1] for text in _texts(word)
            )


def _of_loops(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that ``for code, ... in rows`` takes out of the rows that its function writes
    out.
    """
    for function in ast.walk(tree):
        loops = (
            [node for node in ast.walk(function) if isinstance(node, ast.For)]
            if isinstance(function, ast.FunctionDef)
            else []
        )
        for names in (loop.target.elts for loop in loops if isinstance(loop.target, ast.Tuple)):
            at = next(
                (
                    index
                    for index, name in enumerate(names)
                    if isinstance(name, ast.Name) and name.id == "code"
                ),
                None,
            )
            rows = (
                node
                for node in ast.walk(function)
                if isinstance(node, ast.Tuple) and len(node.elts) == len(names)
            )
            yield from (text for row in rows if at is not None for text in _texts(row.elts[at]))


def _texts(node: ast.AST) -> Iterator[str]:
    yield from (
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )


def _passed_on() -> Iterator[str]:
    for name, tree in _modules():
        for node in ast.walk(tree):
            if name.startswith("cluster/"):  # there a code is one of HTTP
                continue
            if (
                isinstance(node, ast.keyword)
                and node.arg == "code"
                and not list(_texts(node.value))
                # Reasons for and against a pair are no problems: the page of pairs lists them.
                and not ast.unparse(node.value).startswith("PairCode.")
            ):
                yield f"{name}: {ast.unparse(node.value)}"
