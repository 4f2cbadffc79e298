"""What has been tried against the operator names tests: each of them exists, and no finding and no
threat is left without one.
"""

import re

from tests.support.builders_chart import ROOT
from tests.support.reference_security import TRIED


def test_every_test_that_the_report_names_exists() -> None:
    named = [
        test.split("::") for rows in TRIED.values() for row in rows for test in row.get("tests", [])
    ]
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(
            rf"^ *(async )?def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE
        )
    ]

    assert named
    assert missing == []


def test_every_finding_and_every_threat_is_there_with_a_test() -> None:
    rows = [*TRIED["findings"], *TRIED["threats"]]

    assert [row["id"] for row in rows] == [f"S{number}" for number in range(1, 18)] + [
        f"T{number}" for number in range(1, 25)
    ]
    assert [row["id"] for row in rows if not row.get("tests")] == []
