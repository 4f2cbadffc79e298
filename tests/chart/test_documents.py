"""The chart documents itself: values.yaml, its copy, the README and the schema say the same."""

from pathlib import Path

import pytest
import yaml

from tests.support.builders_chart import CHART, defaults
from tests.support.chart_documents import documents


@pytest.fixture(scope="module")
def written() -> dict[Path, str]:
    return documents()


def test_what_follows_from_the_schema_and_the_defaults_is_as_they_say(written: dict[Path, str], *, update_goldens: bool) -> None:
    if update_goldens:
        for file, text in written.items():
            file.write_text(text)
        return

    assert [file.name for file, text in written.items() if file.read_text() != text] == []


def test_comments_leave_the_defaults_as_they_are(written: dict[Path, str]) -> None:
    text = written[CHART / "values.yaml"]

    assert yaml.safe_load(text) == defaults()
    assert text.count("# ") > len(defaults())
