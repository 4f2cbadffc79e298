"""The page on security names tests: each of them exists, under the name that it has, and every
finding has its row.
"""

import re

from tests.support.builders_chart import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    named = NAMED.findall(PAGE)
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(
            rf"^ *(async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE
        )
    ]

    assert named
    assert missing == []


def test_every_finding_and_every_threat_has_a_row_with_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [ST]\d", line)]

    assert [row.split()[1] for row in rows] == [f"S{number}" for number in range(1, 18)] + [
        f"T{number}" for number in range(1, 25)
    ]
    assert [row for row in rows if not NAMED.search(row)] == []
