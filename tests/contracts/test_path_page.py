"""The page about the path of a model is the code's: each function is there, and names the next."""

import ast
import re
from functools import cache
from itertools import pairwise

from tests.support.builders_chart import ROOT

PAGE = (ROOT / "docs" / "path-of-a-model.md").read_text()
STEP = re.compile(r"^(\d+)\. `([\w/]+)` `([\w.]+)`", re.MULTILINE)
STEPS = [(int(number), file, name.split(".")) for number, file, name in STEP.findall(PAGE)]
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@cache
def _definitions(file: str) -> dict[str, ast.AST]:
    """Return functions and classes of a module by their names, methods as ``Class.method`` too."""
    tree = ast.parse((ROOT / "operator" / "shardwright" / f"{file}.py").read_text())
    tops = [it for it in tree.body if isinstance(it, DEFINED)]
    methods = {
        f"{top.name}.{it.name}": it
        for top in tops
        for it in top.body
        if isinstance(top, ast.ClassDef) and isinstance(it, DEFINED)
    }
    return {**{it.name: it for it in tops}, **methods}


def _names(file: str, name: str) -> set[str]:
    """Return all names in a function, and in the helpers of its module that it reaches."""
    known = _definitions(file)
    owner, _, _ = name.rpartition(".")
    todo, seen, found = [name], set[str](), set[str]()
    while todo:
        seen.add(at := todo.pop())
        for it in ast.walk(known[at]):
            word = getattr(it, "id", None) or getattr(it, "attr", None)
            if isinstance(word, str):
                found.add(word)
                todo += ({word, f"{owner}.{word}"} & known.keys()) - seen - {*todo}
    return found


def test_each_step_exists() -> None:
    assert STEPS
    assert [(f, n) for _, f, n in STEPS if ".".join(n) not in _definitions(f)] == []


def test_each_step_names_the_next() -> None:
    pairs = [(one, two) for one, two in pairwise(STEPS) if two[0] > 1]

    assert [
        two for (_, file, name), two in pairs if not {*two[2]} & _names(file, ".".join(name))
    ] == []
