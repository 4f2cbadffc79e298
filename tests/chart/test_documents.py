"""The chart documents itself; `make generate` writes it, and tests/contracts/test_pages.py
compares.
"""

from pathlib import Path

import pytest
import yaml

from tests.support.builders_chart import CHART, defaults
from tests.support.chart_documents import documents


@pytest.fixture(scope="module")
def written() -> dict[Path, str]:
    return documents()


def test_comments_leave_the_defaults_as_they_are(written: dict[Path, str]) -> None:
    text = written[CHART / "values.yaml"]

    assert yaml.safe_load(text) == defaults()
    assert text.count("# ") > len(defaults())
