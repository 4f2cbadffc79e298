"""The cost model can be checked with a pencil: what each of its functions computes, in which unit,
how well that was measured and where it comes from, with a number that is run.
"""

import ast
import re
from pathlib import Path

COSTS = Path(__file__).parent.parent.parent / "operator" / "shardwright" / "costs"
STATED = ("Formula", "Unit", "Error", "Source")
FUNCTIONS = {
    f"{path.stem}.{node.name}": ast.get_docstring(node) or ""
    for path in sorted(COSTS.glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
}


def test_a_cost_states_its_formula_unit_error_and_source_in_this_order() -> None:
    labels = {
        function: [line.split(":")[0] for line in text.splitlines()]
        for function, text in FUNCTIONS.items()
    }

    assert {
        function: [label for label in written if label in STATED]
        for function, written in labels.items()
    } == {function: list(STATED) for function in FUNCTIONS}


def test_a_cost_has_a_worked_number() -> None:
    assert [name for name, text in FUNCTIONS.items() if name.split(".")[1] not in _run(text)] == []


def _run(text: str) -> list[str]:
    """Return the functions that the examples of a docstring call."""
    lines = [line for line in text.splitlines() if line.startswith((">>>", "..."))]
    return re.findall(r"\w+(?=\()", "".join(lines))
