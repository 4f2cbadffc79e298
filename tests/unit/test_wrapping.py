"""Documents are wrapped where a line is too long, or ends long before it has to."""

import pytest

from tests.support.wrapping import WIDTH, wrapped

LONG = "word " * 40


def test_a_long_paragraph_is_filled_and_keeps_its_words() -> None:
    lines = wrapped(LONG.strip()).splitlines()

    assert [len(line) <= WIDTH for line in lines] == [True, True]
    assert " ".join(lines) == LONG.strip()


def test_the_lines_of_an_item_stand_under_its_text() -> None:
    first, second = wrapped(f"- {LONG}".strip()).splitlines()

    assert (first[:6], second[:6]) == ("- word", "  word")


@pytest.mark.parametrize(
    "kept",
    [
        f"| {LONG}|",
        f"```sh\n{LONG}\n```",
        f"# {LONG}",
        f"{'word ' * 20}word\n{'word ' * 20}word\nlast",
    ],
)
def test_tables_blocks_headings_and_lines_that_are_nearly_full_stay(kept: str) -> None:
    assert wrapped(kept) == kept


def test_lines_that_end_too_soon_are_filled() -> None:
    assert wrapped("- short\n  lines\n  of one item") == "- short lines of one item"


def test_a_span_of_code_is_not_broken() -> None:
    assert "`kubectl get nodes -A`" in wrapped(f"{'word ' * 22}`kubectl get nodes -A` {LONG}")


def test_no_line_begins_like_markup() -> None:
    lines = wrapped(f"{'x' * (WIDTH - 3)} to 1. {LONG}").splitlines()

    assert lines[1].startswith("to 1. word")


def test_wrapping_twice_is_wrapping_once() -> None:
    once = wrapped(f"- {LONG}\n- {LONG}\n\n{LONG}")
    assert wrapped(once) == once
