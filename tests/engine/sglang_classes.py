"""What SGLang's model classes say of themselves, read from their source: no class can be imported without a GPU's
kernels.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from shardwright.modelspec.families import FAMILIES

_EAGLE3 = "set_eagle3_layers_to_capture"
_STAGES = "pp_proxy_tensors"

Methods = dict[str, ast.FunctionDef]


def classes_of(sources: Path) -> dict[str, list[str]]:
    """Return, of the classes that are read here, those that no stages and those that an EAGLE-3 head take."""
    trees = [ast.parse(path.read_text()) for path in (sources / "sglang/srt/models").rglob("*.py")]
    classes = {name: found for tree in trees for name, found in _classes(tree)}
    entries = {name for tree in trees for name in _entries(tree)} & FAMILIES.keys()
    return {
        "without_pipeline": sorted(name for name in entries if not _takes_stages(name, classes)),
        "takes_eagle3": sorted(name for name in entries if _method(name, _EAGLE3, classes)),
    }


def _classes(tree: ast.Module) -> Iterator[tuple[str, tuple[list[str], Methods]]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            yield node.name, (bases, methods)


def _entries(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [
            "EntryClass"
        ]:
            listed = (
                node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            )
            yield from map(ast.unparse, listed)


def _method(
    name: str, method: str, classes: dict[str, tuple[list[str], Methods]]
) -> ast.FunctionDef | None:
    bases, methods = classes.get(name, ([], {}))
    inherited = (_method(base, method, classes) for base in bases if base != name)
    return methods.get(method) or next((found for found in inherited if found), None)


def _takes_stages(name: str, classes: dict[str, tuple[list[str], Methods]]) -> bool:
    forward = _method(name, "forward", classes)
    if forward is None:  # of a base that is not among the models: nothing is refused
        return True
    arguments = (*forward.args.args, *forward.args.kwonlyargs)
    return any(argument.arg == _STAGES for argument in arguments)
