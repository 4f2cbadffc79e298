"""What the planner says, word by word: reasons, runners-up and what was ruled out, for layouts an expert knows."""

from pathlib import Path

import pytest

from shardwright.hardware.inventory import Pool
from shardwright.planning.plan import make_plan
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import Request
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

HERE = Path(__file__).parent

CASES: dict[str, tuple[str, Pool, Request]] = {
    "405b-on-two-h100-nodes": ("llama-405b", a_pool(nodes=2), a_request()),
    "8b-on-one-l4": ("llama-8b", a_pool("L4-24GB", gpus_per_node=1), a_request()),
    "405b-on-one-node": ("llama-405b", a_pool(), a_request()),
}


def _lines(report: Report) -> str:
    outcome = report.outcome
    if isinstance(outcome, Plan):
        lines = [*outcome.reasons, *(f"Warning: {text}" for text in outcome.warnings)]
        lines += [f"Not deployed: {outcome.deployable.sentence()}"] if outcome.deployable else []
    else:
        lines = [f"{outcome.problem.code}: {outcome.problem.sentence()}", f"Heals by itself: {outcome.heals_by_itself}"]
    for item in report.alternatives:
        layout = item.layout
        lines.append(f"Next: tensor {layout.tensor}, pipeline {layout.pipeline}, expert {layout.expert}: {item.loses}")
    lines.append(f"Considered: {report.considered}")
    lines += [f"Excluded {item.count} {item.code}: {item.nearest_miss or item.example}" for item in report.excluded]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_the_explanation(case: str, update_goldens: bool) -> None:  # noqa: FBT001 - a fixture of the suite
    model, pool, request = CASES[case]
    text = _lines(make_plan(a_model(model), an_inventory(pool), request, vllm_traits()))
    golden = HERE / f"{case}.txt"
    if update_goldens:
        golden.write_text(text)
    assert text == golden.read_text()
