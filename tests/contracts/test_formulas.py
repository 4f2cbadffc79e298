"""The cost model can be checked with a pencil: what each of its functions computes, in which unit,
how well that was measured and where it comes from, with a number that is run.
"""

import ast
from pathlib import Path

import pytest

COSTS = Path(__file__).parent.parent.parent / "operator" / "shardwright" / "costs"
STATED = ("Formula", "Unit", "Error", "Source")
FUNCTIONS = {
    f"{path.stem}.{node.name}": ast.get_docstring(node) or ""
    for path in sorted(COSTS.glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_cost_states_its_formula_unit_error_and_source_in_this_order(function: str) -> None:
    labels = [line.split(":")[0] for line in FUNCTIONS[function].splitlines()]

    assert [label for label in labels if label in STATED] == list(STATED)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_cost_has_a_worked_number(function: str) -> None:
    assert f"{function.split('.')[1]}(" in "".join(
        line for line in FUNCTIONS[function].splitlines() if line.startswith((">>>", "..."))
    )
