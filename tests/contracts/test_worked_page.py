"""The page that works one step out is what the planner predicts."""

import doctest
from pathlib import Path
from typing import Any

import pytest

from shardwright.costs.coefficients import coefficients_of
from shardwright.costs.roofline import Batch, step_time
from tests.support.worked_examples import worked_examples

PAGE = Path(__file__).parent.parent.parent / "docs" / "planner-speed-worked.md"


def test_the_step_that_a_page_works_out_is_the_one_of_the_planner() -> None:
    text = PAGE.read_text().replace("```python", "").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, None, 0)
    runner = doctest.DocTestRunner()
    runner.run(examples, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0

    task: Any = worked_examples()["task"]
    (kind,) = task.replica.kinds
    batch = Batch(sequences=64, sampled=64, context_tokens=2304)
    fitted = coefficients_of("vLLM", "")
    predicted = step_time(kind.floor, task.replica.links, batch, fitted).total_seconds
    assert examples.globs["step"] == pytest.approx(predicted, rel=0.002)
