"""The page of faults names every fault once, with tests that exist."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "reference" / "faults.md"
CELLS = 5  # fault, injected, shown as, healed, tests


@cache
def _rows() -> tuple[tuple[str, ...], ...]:
    """Return the cells of the table of faults."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| F")]
    return tuple(tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines)


def test_every_fault_of_the_list_has_its_row() -> None:
    named = [int(number) for fault, *_ in _rows() for number in re.findall(r"F(\d+)", fault)]
    assert sorted(named) == list(range(1, 43))


def test_every_row_says_how_it_is_injected_shown_healed_and_tested() -> None:
    assert [row[0] for row in _rows() if len(row) != CELLS or not all(row)] == []


def test_every_test_that_is_named_exists() -> None:
    named = [name for row in _rows() for name in re.findall(r"`([^`]+::[^`]+)`", row[-1])]
    assert [row[0] for row in _rows() if "::" not in row[-1]] == []
    missing = [name for name in named if not _exists(*name.split("::"))]
    assert missing == []


def _exists(path: str, name: str) -> bool:
    file = TESTS / path
    return file.exists() and f"def {name}(" in file.read_text()
