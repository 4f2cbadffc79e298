"""What holds for every question to the planner; ``make explore`` asks many more."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.costs.estimator import Estimator, Task
from shardwright.layouts.layout import Candidate
from tests.support.examples import examples
from tests.support.plan_laws import examine
from tests.support.questions import a_question

FOUND = (
    0,
    42,
    243,
    579,
    100162,
    100496,
    110385,
    200452,
    207367,
    216604,
    200217,
    202250,
    1000107,
    1000153,
    1001060,
    1002132,
    1009855,
    2000934,
    2001312,
    2001554,
)
"""Seeds of questions that broke a law, or the planner, once (216604 had it choose without end).
"""


@examples(80)
@given(seed=st.integers(0, 10**6))
def test_no_law_is_broken(seed: int) -> None:
    assert [str(finding) for finding in examine(a_question(seed)).findings] == []


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_broken_once_is_not_any_more(seed: int) -> None:
    assert [str(finding) for finding in examine(a_question(seed)).findings] == []


def _is_broken(law: str, seeds: range) -> bool:
    """Return whether one of these questions breaks a law; those after the first that does are not
    asked.
    """
    return any(
        finding.law == law for seed in seeds for finding in examine(a_question(seed)).findings
    )


def test_attention_ranks_that_serve_requests_that_do_not_exist_break_littles_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole: Callable[..., Task] = Estimator.task

    def for_every_rank(self: Estimator, candidate: Candidate, *more: object) -> Task:
        layout = candidate.layout
        return replace(
            whole(self, candidate, *more), groups=layout.replicas * layout.attention_data
        )

    monkeypatch.setattr(Estimator, "task", for_every_rank)

    assert _is_broken("Little", range(60))
