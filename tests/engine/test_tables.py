"""The tables that planning reads say what the wheels say."""

import pytest

from tests.engine import environment, tables
from tests.harness.errors import HarnessError


@pytest.mark.parametrize("version", environment.VERSIONS)
def test_the_table_of_backends_is_that_of_the_wheel(version: str) -> None:
    # Minutes: every GPU is asked about in a process of its own, and AMD's import the engine each.
    engine = environment.installed()
    assert engine is not None, "the engine is not installed: run `make test-engine`"

    found = tables.asked(engine, version)

    assert list(tables.differences(found, tables.written(version))) == []


def test_a_row_that_differs_is_named() -> None:
    table = tables.written(environment.UNPACKED)
    changed = {**table, "refines": ["fp8"], "rows": [dict(row) for row in table["rows"]]}
    changed["rows"][-1]["backends"] = {"OTHER": ["9.0"]}

    found = list(tables.differences(table, changed))

    assert [line.partition(": ")[0] for line in found] == [
        "State, heads of 0, K/V auto, 0 selected",
        "refines",
    ]
    assert found[0].endswith("in the wheel, {'OTHER': ['9.0']} in the table")


def test_a_version_that_nobody_has_is_refused_with_those_that_are_known() -> None:
    engine = environment.installed()
    assert engine is not None, "the engine is not installed: run `make test-engine`"

    with pytest.raises(
        HarnessError, match=r"0\.99\.0 is not in the environment, only 0\.32\.0 and"
    ):
        tables.asked(engine, "0.99.0")
