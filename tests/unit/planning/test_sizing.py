"""The search for the fewest GPUs, with a planner that is a function of their number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwright.errors import Problem
from shardwright.planning.arrivals import estimator_of
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan
from shardwright.planning.sizing import SizedOutcome, fewest, size
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

NOTHING = NoPlan(problem=Problem(code="TtftLimitExceeded", what="too slow"), heals_by_itself=False)


@pytest.fixture
def carries_from(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    found = {"gpus": 0}
    monkeypatch.setattr(SizedOutcome, "carries", property(lambda step: step.gpus >= found["gpus"]))
    return found


@pytest.mark.parametrize("needed", [1, 2, 3, 7, 8, 9, 100, 1023, 1024])
def test_the_fewest_that_carry_are_found(carries_from: dict[str, int], needed: int) -> None:
    carries_from["gpus"] = needed

    best = fewest(size(lambda _: NOTHING, 1024))

    assert best is not None
    assert best.gpus == needed


def test_where_the_most_do_not_carry_nothing_is_found_and_no_number_is_asked_twice(
    carries_from: dict[str, int],
) -> None:
    carries_from["gpus"] = 1025
    asked: list[int] = []

    def ask(gpus: int) -> NoPlan:
        asked.append(gpus)
        return NOTHING

    steps = size(ask, 1024)

    assert fewest(steps) is None
    assert asked == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def test_a_little_more_is_tried_too_but_never_more_than_the_most(
    carries_from: dict[str, int],
) -> None:
    carries_from["gpus"] = 24

    assert [step.gpus for step in size(lambda _: NOTHING, 40) if step.gpus >= 24] == [
        24,
        30,
        32,
        36,
    ]


@pytest.mark.parametrize("rate", [None, 6.0], ids=["in flight", "rate"])
@pytest.mark.parametrize("model", ["llama-8b", "llama-70b", "qwen3-30b-a3b"])
def test_what_was_priced_for_other_numbers_and_products_changes_no_answer(
    model: str, rate: float | None
) -> None:
    asked = a_request(fill=True, replicas=1000, ttft_seconds=2.0)
    workload = replace(asked.workload, requests_per_second=rate)
    shared = estimator_of(a_model(model), replace(asked, workload=workload), vllm_traits())

    for gpu in ("H100-SXM-80GB", "L40S-48GB"):
        for gpus in (2, 15):  # part of a node, and parts of two
            pool = a_pool(gpu, -(-gpus // 8), free={gpus // 8: gpus % 8})
            request = replace(asked, workload=workload, space=replace(asked.space, max_gpus=gpus))
            question = (a_model(model), an_inventory(pool), request, vllm_traits())
            assert make_plan(*question, shared) == make_plan(*question)
