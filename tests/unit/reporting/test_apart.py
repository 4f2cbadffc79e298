"""Every reason for or against a pair has words, and the page of pairs lists it."""

from pathlib import Path

import pytest

from shardwright.planning.report import PairCode, PairReason
from shardwright.reporting.apart import reason_sentence

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "prefill-decode.md"


@pytest.mark.parametrize("code", PairCode)
def test_a_reason_is_said_and_listed(code: PairCode) -> None:
    said = reason_sentence(PairReason(code=code, amount=0.5))

    assert "{" not in said
    assert f"| `{code.value}` |" in PAGE.read_text()
