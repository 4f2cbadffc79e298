"""Sources that the code names can be opened: pages of this repository, in sections that they have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = "engine-measurements.md"
CODE = [
    file
    for folder in ("operator/shardwright", "tests/kind", "benchmarks")
    for ending in ("*.py", "*.j2")
    for file in (ROOT / folder).rglob(ending)
]
CITED = re.compile(rf"\b{re.escape(PAGE)}(?:[\s#]+(\d+(?:\.\d+)?)\b)?")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
BARE_PAGE = re.compile(r"(?<![\w/.<>-])([a-z][\w-]*\.md)\b")
PRINTED = {"why.txt"}  # a file that an example of the command line writes
NUMBERED = re.compile(r"\b([a-z][\w-]*\.md)[\s#]+(?:section )?\d")


def test_every_section_of_measurements_that_code_cites_is_there() -> None:
    page = (ROOT / "docs" / "reference" / PAGE).read_text()
    cited = {
        (str(file.relative_to(ROOT)), section)
        for file in CODE
        for section in CITED.findall(file.read_text())
    }

    assert cited
    assert {found for found in cited if found[1] not in HEADING.findall(page)} == set()


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("Source: engine-measurements.md 10: tokens", "10"),
        ("(engine-measurements.md 5.6).", "5.6"),
        ("# as in engine-measurements.md\n    # 1.2", "1.2"),
        ("engine-measurements.md says so", ""),
    ],
)
def test_a_citation_is_read_across_lines_and_one_without_a_section_is_none(
    text: str, section: str
) -> None:
    assert CITED.findall(text) == [section]


def test_only_the_record_is_cited_by_numbers() -> None:
    """The sections of other pages have no numbers: a reader could not find them."""
    assert {page for file in CODE for page in NUMBERED.findall(file.read_text())} == {PAGE}


def test_every_page_that_code_names_is_in_the_repository() -> None:
    pages = {file.name for file in ROOT.glob("*.md")}
    pages |= {file.name for file in (ROOT / "docs").rglob("*.md")}
    named = {page for file in CODE for page in BARE_PAGE.findall(file.read_text())}

    assert PAGE in named
    assert named - pages - PRINTED == set()
