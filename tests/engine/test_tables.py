"""The tables that planning reads say what the wheels say."""

import pytest

from tests.engine import environment, tables
from tests.harness.errors import HarnessError


@pytest.mark.parametrize("version", environment.VERSIONS)
def test_the_table_of_backends_is_that_of_the_wheel(version: str) -> None:
    # 2 min: every GPU is asked about in a process of its own, and AMD's import the engine each.
    engine = environment.installed()
    assert engine is not None, "the engine is not installed: run `make test-engine`"

    found = tables.asked(engine, version)

    assert list(tables.differences(found, tables.written(version))) == []


def test_a_row_that_differs_is_named() -> None:
    table = tables.written(environment.UNPACKED)
    row, *others = table["rows"]
    changed = {**table, "rows": [{**row, "heads": [128], "backends": {"9.0": "OTHER"}}, *others]}

    first, *_ = tables.differences(table, changed)

    assert first.startswith("Dense, heads of 104, K/V auto, 0 selected: {")


def test_a_version_that_nobody_has_is_refused_with_those_that_are_known() -> None:
    engine = environment.installed()
    assert engine is not None, "the engine is not installed: run `make test-engine`"

    with pytest.raises(
        HarnessError, match=r"0\.99\.0 is not in the environment, only 0\.32\.0 and"
    ):
        tables.asked(engine, "0.99.0")
