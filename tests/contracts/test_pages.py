"""Pages for readers: short enough to be read, no wider than an editor, and every command in them is
one that exists.
"""

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.commands import build_parser
from shardwright.controller.operator_options import operator_parser
from tests.generated import documents
from tests.harness import build
from tests.support.builders_chart import defaults
from tests.support.reference_pages import pages
from tests.support.wrapping import AS_WRITTEN, WIDTH, wrapped

ROOT = Path(__file__).parent.parent.parent
WORDS = 700
WIDEST_ROW = 300  # of a table: it cannot be broken
NAMES_OF_TESTS = (
    "docs/reference/faults.md",
    "docs/reference/label-traps.md",
)  # rows that end in the tests that show them

GENERATED = {f"docs/{name}" for name in pages()} | {"charts/shardwright/README.md"}
LONG = {
    "CHANGELOG.md": "a log",
    "SECURITY.md": "two pages of print: who is trusted, and what the operator's token is worth",
    "docs/reasons.md": (
        "a dictionary: one paragraph of eight lines at most for each word, held to the code "
        "by test_reasons.py"
    ),
    "docs/reference/reasons-of-input.md": "the same, for what a user writes",
    "docs/reference/faults.md": "one row for each fault, held to the tests by test_faults_page.py",
    "docs/reference/engine-measurements.md": (
        "a record that sources point to by section, held to them by test_citations.py"
    ),
    "docs/benchmarks/": "measured output",
    "docs/what-ran-where.md": "measured output",
    "docs/decisions/": "records of a choice with its numbers, left as they were written",
}
"""Pages that may have more words, or prefixes of them, and why."""

LANGUAGES = {"sh", "console", "yaml", "json", "text", "promql", "python"}
TOOLS = {
    ".venv/bin/python",
    "base64",
    "cosign",
    "curl",
    "echo",
    "export",
    "git",
    "grep",
    "helm",
    "jq",
    "kubectl",
    "make",
    "openssl",
    "printf",
    "python",
    "rm",
    "sha256sum",
    "shardwright",
    "shardwright-operator",
    "source",
}
"""First words of commands that a page may show; what ours, make, Helm and kubectl are told is
looked at further.
"""

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
SET = re.compile(r"--set(?:-file|-string)?[ =]'?([A-Za-z.]+)")
PLUGINS = (("kubectl", "shardwright"), ("kubectl", "krew"))
NEXT_COMMAND = re.compile(r"^[()|&;\n]+$|^<\($")
MAKE = re.compile(r"^([a-z-]+):", re.MULTILINE)

Words = tuple[str, ...]


def _pages() -> dict[str, str]:
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
            ":(glob)*.md",
            "docs",
            "charts",
            "examples",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [
        name
        for name in sorted(set(listed.split()))
        if name.endswith(".md") and (ROOT / name).exists()
    ]
    return {name: (ROOT / name).read_text() for name in names}


def _blocks(kind: str) -> list[str]:
    return [
        text
        for page in PAGES.values()
        for language, text in FENCE.findall(page)
        if language == kind
    ]


def test_a_page_is_read_in_one_sitting() -> None:
    words = {
        page: len(text.split())
        for page, text in PAGES.items()
        if page not in GENERATED and not page.startswith(tuple(LONG))
    }
    assert {page: count for page, count in words.items() if count > WORDS} == {}


def test_every_page_that_may_be_long_is_there() -> None:
    assert [name for name in LONG if not (ROOT / name).exists()] == []


def test_no_line_is_wider_than_an_editor() -> None:
    """`make fmt` wraps prose."""
    pages_to_wrap = {
        page: text
        for page, text in PAGES.items()
        if page not in GENERATED and not page.startswith(AS_WRITTEN)
    }
    wide = [
        (page, line)
        for page, text in pages_to_wrap.items()
        for line in text.splitlines()
        if len(line) > _most(page, line)
    ]

    assert [page for page, text in pages_to_wrap.items() if wrapped(text) != text] == []
    assert wide == []


def test_every_decision_says_how_it_stands() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    assert [
        page.name
        for page in decisions
        if not page.read_text().splitlines()[2].startswith("Status: ")
    ] == []


def test_every_block_says_what_it_is() -> None:
    """What has no language, or another one, would be looked at by no test."""
    kinds = {
        (page, kind)
        for page, text in PAGES.items()
        if not page.startswith(AS_WRITTEN)
        for kind, _ in FENCE.findall(text)
    }
    assert sorted((page, kind) for page, kind in kinds if kind not in LANGUAGES) == []


def test_yaml_and_json_can_be_read() -> None:
    for text in _blocks("yaml"):
        list(yaml.safe_load_all(text))
    for text in _blocks("json"):
        json.loads(text)


def test_commands_are_of_tools_that_readers_have() -> None:
    assert {words[0] for words in COMMANDS} - TOOLS == set()


def test_our_commands_are_taken() -> None:
    for words in COMMANDS:
        if words[0] == "shardwright":
            build_parser("shardwright").parse_args(words[1:])
        elif words[:2] == ("kubectl", "shardwright"):
            build_parser("kubectl shardwright").parse_args(words[2:])
        elif words[0] == "shardwright-operator":
            operator_parser().parse_args(words[1:])


def test_our_commands_in_sentences_exist_with_their_options() -> None:
    """They are shortened there, so they are not parsed as a whole."""
    wrong = {
        " ".join(words)
        for words in _spans("shardwright ", "kubectl shardwright ")
        if not _is_known(words[words.index("shardwright") + 1 :])
    }
    assert wrong == set()


def test_every_target_that_is_made_is_in_the_makefile() -> None:
    made = {
        word for words in COMMANDS if words[0] == "make" for word in words[1:] if "=" not in word
    }
    assert made - set(MAKE.findall((ROOT / "Makefile").read_text())) == set()


def test_values_that_helm_is_told_are_values_of_the_chart() -> None:
    told = {
        name
        for words in COMMANDS
        if words[0] == "helm" and any("shardwright" in word for word in words)
        for name in SET.findall(" ".join(words))
    }

    assert told
    assert {name for name in told if not _is_value(name.split("."))} == set()


def test_shell_blocks_are_shell() -> None:
    """All of them in one process: a shell for each would take longer than the rest of this file."""
    script = "\n".join(
        f"bash -n <<'END_OF_BLOCK' || echo {shlex.quote(text)}\n{text}END_OF_BLOCK"
        for text in _blocks("sh")
    )

    assert (
        subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
        == ""
    )


@pytest.mark.controlplane
def test_what_kubectl_and_helm_are_told_is_taken() -> None:
    """They are asked for help with the same words: an option that they do not have is refused
    first.
    """
    typed = {
        words
        for words in {*COMMANDS, *_spans("kubectl ", "helm ")}
        if words[0] in ("kubectl", "helm")
    }
    typed -= {words for words in typed if words[:2] in PLUGINS}
    refused = {" ".join(words): said for words in sorted(typed) if (said := _complaint(words))}

    assert typed
    assert refused == {}


def test_output_that_needs_a_cluster_is_that_of_a_test() -> None:
    page = (ROOT / "docs" / "howto" / "why-is-it-not-ready.md").read_text()
    shown = [
        line
        for kind, text in FENCE.findall(page)
        if kind == "text" and "llama-0" in text
        for line in text.splitlines()
    ]
    tested = (
        (ROOT / "tests" / "unit" / "cli" / "test_model_state.py")
        .read_text()
        .replace("{FULL * 5}{LIGHT * 15}", "█" * 5 + "░" * 15)
    )

    assert shown
    assert [line for line in shown if f'"{line}"' not in tested] == []


@pytest.mark.parametrize("file", documents(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_generated_file_is_as_make_generate_writes_it(file: Path) -> None:
    assert file.read_text() == _generated()[file]


@cache
def _generated() -> dict[Path, str]:
    return documents()


def _complaint(words: tuple[str, ...]) -> str:
    done = subprocess.run(
        [build.binaries() / words[0], *words[1:], "--help"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.stderr if done.returncode else ""


def _spans(*beginnings: str) -> set[Words]:
    """Return the commands that stand in sentences, up to a pipe: code of more than two words that
    begins so.
    """
    sentences = (
        FENCE.sub("", text) for page, text in PAGES.items() if not page.startswith(AS_WRITTEN)
    )
    found = {
        span for text in sentences for span in CODE.findall(text) if span.startswith(beginnings)
    }
    return {
        words
        for span in found
        for words in _commands(span)
        if " ".join(words).startswith(beginnings)
    }


def _is_known(words: Words) -> bool:
    parser: argparse.ArgumentParser = build_parser("shardwright")
    for word in words:
        groups = [
            action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        ]
        if groups and word not in parser._option_string_actions:
            if word not in groups[0].choices:
                return word in ("COMMAND", "...", "…")
            parser = groups[0].choices[word]
        elif (
            word.startswith("-")
            and word != "-"
            and word.partition("=")[0] not in parser._option_string_actions
        ):
            return False
    return True


def _is_value(steps: list[str]) -> bool:
    found: Any = defaults()
    for step in steps:
        if not isinstance(found, dict) or (found and step not in found):
            return False
        found = found.get(step, {})
    return True


def _commands(block: str) -> Iterator[Words]:
    """Yield the commands of a shell block, by word, without redirections."""
    text = COMMENT.sub(r"\1", block).replace("\\\n", " ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    redirected = False
    for word in [*lexer, "\n"]:
        if NEXT_COMMAND.match(word):
            if words:
                yield tuple(words)
            words = []
        elif set(word) <= {"<", ">"}:
            redirected = True
        elif redirected or (not words and re.match(r"[A-Z_]+=", word)):
            redirected = False
        else:
            words.append(word)


def _most(page: str, line: str) -> int:
    if not line.startswith("|"):
        return WIDTH
    return 1000 if page in NAMES_OF_TESTS else WIDEST_ROW


PAGES = _pages()
COMMANDS = {words for text in _blocks("sh") for words in _commands(text)}
