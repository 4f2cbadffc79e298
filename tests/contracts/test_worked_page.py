"""The pages that work a step and a request out with numbers are what the planner predicts."""

import doctest
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.costs.coefficients import Band, coefficients_of
from shardwright.costs.estimator import Estimator, Task
from shardwright.costs.roofline import Batch, step_time
from shardwright.costs.speed import performance, serve
from shardwright.layouts.layout import Layout
from tests.support.builders_plan import a_model, vllm_traits
from tests.support.worked_examples import a_load, on_h100s

DOCS = Path(__file__).parent.parent.parent / "docs"
FITTED = coefficients_of("vLLM", "")
AS_ROUNDED = 0.0002
"""By how much figures of the page may be off that start from times in microseconds."""


def _names_of(page: str) -> Mapping[str, float]:
    """Run a page as it is read, and return what it computed."""
    text = (DOCS / page).read_text().replace("```python", "").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, page, None, 0)
    runner = doctest.DocTestRunner()
    runner.run(examples, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0
    return examples.globs


def _task(layout: Layout) -> Task:
    """Return the case of the pages, cut so."""
    estimator = Estimator(a_model("llama-70b"), a_load(), vllm_traits())
    return estimator.task(on_h100s(layout))


def test_the_step_that_a_page_works_out_is_the_one_of_the_planner() -> None:
    task = _task(Layout(tensor=8))
    (kind,) = task.replica.kinds
    batch = Batch(sequences=64, sampled=64, context_tokens=2304)

    predicted = step_time(kind.floor, task.replica.links, batch, FITTED)
    assert _names_of("planner-speed-worked.md")["step"] == pytest.approx(
        predicted.total_seconds, rel=0.002
    )


def test_the_steps_that_a_page_starts_a_request_from_are_those_of_the_planner() -> None:
    page, task = _names_of("planner-request-worked.md"), _task(Layout(tensor=8))
    (kind,) = task.replica.kinds
    decoding = {"sequences": 64.0, "context_tokens": 2304.0}
    prompt = {"prompt_tokens": 2048.0, "prompt_context_tokens": 1024.0}

    predicted = {
        "decode": Batch(**decoding, sampled=64),
        "mixed": Batch(**decoding, **prompt, sampled=65),
        "alone": Batch(**prompt, sampled=1),
    }
    assert {name: page[name] for name in predicted} == pytest.approx(
        {
            name: step_time(kind.floor, task.replica.links, batch, FITTED).total_seconds
            for name, batch in predicted.items()
        },
        rel=AS_ROUNDED,
    )


def test_the_request_that_a_page_works_out_is_the_one_of_the_planner() -> None:
    page, task = _names_of("planner-request-worked.md"), _task(Layout(tensor=8))
    speed = serve(task.replica, task.load, FITTED)
    band = Band(low=1.0, high=1.0, basis="fitted")
    seen = performance(speed, task.load, task.groups, running=64, band=band)

    worked = [page[name] for name in ("stay", "prefill", "waiting", "tpot", "ttft")]
    assert worked == pytest.approx(
        [
            speed.stay_seconds,
            speed.prefill_seconds,
            speed.waiting_seconds,
            seen.tpot_seconds,
            seen.ttft_seconds,
        ],
        rel=AS_ROUNDED,
    )
    assert page["rate"] == pytest.approx(seen.output_tokens_per_second, rel=AS_ROUNDED)


def test_the_queue_that_a_page_works_out_is_the_one_of_the_planner() -> None:
    page, task = _names_of("planner-request-worked.md"), _task(Layout(tensor=8))

    queued = serve(task.replica, replace(task.load, offered=96.0), FITTED)
    assert page["queued"] == pytest.approx(queued.queued_seconds, rel=AS_ROUNDED)


def test_the_stages_that_a_page_works_out_are_those_of_the_planner() -> None:
    page, task = (_names_of("planner-request-worked.md"), _task(Layout(tensor=4, pipeline=2)))

    speed = serve(task.replica, task.load, FITTED)
    assert [page["first"], page["last"]] == pytest.approx(
        [stage.total_seconds for stage in speed.decode.stages], rel=AS_ROUNDED
    )
    assert page["cycle"] == pytest.approx(speed.cycle_seconds, rel=AS_ROUNDED)
