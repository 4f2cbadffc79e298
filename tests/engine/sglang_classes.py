"""What SGLang's model classes say of themselves, read from their source: no class can be imported without a GPU's
kernels. `python -m tests.engine sglang` writes it, and the options of the parser.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from shardwright.modelspec.families import FAMILIES
from tests.engine import environment
from tests.engine.questions import Engine

VERSION = "0.5.23"
DATA = Path(__file__).parents[2] / "operator/shardwright/engines/sglang/data"
CHECKER = Path(__file__).with_name("sglang_checker.py")

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


def write(installed: environment.Environment) -> None:
    """Write both tables of the version in the lock."""
    sources = environment.sglang(installed)
    with TemporaryDirectory() as folder:
        engine = Engine(installed, VERSION, Path(folder) / "log", (str(CHECKER), str(sources)))
        rows = engine.ask({"lists": True}).result()["options"]
        engine.close()
    head = {"engine": "SGLang", "version": VERSION}
    parser = "its own argparse parser (sglang/srt/server_args.py: ServerArgs.add_cli_args)"
    told = head | {"source": f"SGLang {VERSION}: {parser}, asked by tests/engine/sglang_checker.py"}
    listed = ",\n".join(map(json.dumps, rows))
    text = f'{json.dumps(told)[:-1]}, "options": [\n{listed}\n]}}\n'
    (DATA / f"options-{VERSION}.json").write_text(text)
    read = f"SGLang {VERSION}: classes of srt/models, read by tests/engine/sglang_classes.py"
    classes = head | {"source": read} | classes_of(sources)
    (DATA / f"classes-{VERSION}.json").write_text(json.dumps(classes, indent=1) + "\n")


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
