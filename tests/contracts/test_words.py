"""Words that a reader had to decode have been replaced, in pages, in messages and in what the chart
says.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.wrapping import AS_WRITTEN

ROOT = Path(__file__).parent.parent.parent
REPLACED = {
    "Mind": "Warnings",
    "Serve only who has a key": "Require an API key",
    "goes on on": "is moved to",
    "all or none": "gang scheduling, or all or nothing",
    "put aside": "excluded",
    "never becomes ready costs nothing": "interrupts nothing",
    "mend": "fix, or repair",
    "heals by itself": "recovers automatically",
    "without limit": "indefinitely, or without a limit",
    "what came of": "the result, or the outcome",
    "no leave to": "no permission to",
    "names of their own": "each under its name",
    "name of its own": "its own name",
    "become what is wanted": "the fields that cannot be changed",
    "what is wanted, as": "Inputs",
    "what is there:": "Cluster",
    "nothing is left over": "everything divides",
    "cannot stand in a header": "holds characters that a header cannot have",
    "through zero": "restarts as a whole",
    "as do 1 others": "as does one other",
}
"""Each phrase that was found, with its replacement."""

PLAIN = {
    "anew": "again",
    "whoever": "anybody who",
    "carry it": "are enough",
    "stands beside": "is next to",
}
"""What reads like a translation, with its replacement: in pages that people read from the top."""

LOOKED_UP = ("docs/decisions/", "docs/reference/", "docs/benchmarks/", "docs/reasons.md")

ONE_CASE = {"Mind", "without limit"}
"""Phrases that stand for something else in another case: a mind, and a LimitRange."""

REFERS_BACK = re.compile(r"(Return|Yield) (the same|such|them|their|its|those|both|all that)\b")
"""Beginnings of a docstring that name no thing: only another docstring tells which one is meant."""

# their text is part of the hash of a template: a word is not worth a RolloutPending of every model
IN_PODS = "programs"
SAID = [
    file
    for ending in ("*.py", "*.j2")
    for file in (ROOT / "operator" / "shardwright").rglob(ending)
    if IN_PODS not in file.parts
]
SHOWN = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "charts").rglob("*.yaml"),
    *(ROOT / "charts").rglob("*.tpl"),
]


def test_nobody_has_to_decode_it() -> None:
    texts = {
        name: file.read_text()
        for file in [*SAID, *SHOWN]
        if not (name := file.relative_to(ROOT).as_posix()).startswith(AS_WRITTEN)
    }

    assert _found(REPLACED, texts) == []


def test_pages_are_in_plain_words() -> None:
    pages = {
        name: file.read_text()
        for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        if not (name := file.relative_to(ROOT).as_posix()).startswith(LOOKED_UP)
    }

    assert _found(PLAIN, pages) == []


def _found(phrases: Iterable[str], texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each phrase with the file that has it."""
    return [
        (phrase, name)
        for phrase in phrases
        for name, text in texts.items()
        if _phrase(phrase).search(text)
    ]


def _phrase(phrase: str) -> re.Pattern[str]:
    case = re.NOFLAG if phrase in ONE_CASE else re.IGNORECASE
    return re.compile(rf"\b{re.escape(phrase)}".replace("\\ ", r"\s+"), case)


def test_a_docstring_names_the_thing_that_is_returned() -> None:
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)

    assert [
        f"{file.relative_to(ROOT)}: {said.splitlines()[0]}"
        for file in SAID
        if file.suffix == ".py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, documented)
        and (said := ast.get_docstring(node))
        and REFERS_BACK.match(said)
    ] == []
