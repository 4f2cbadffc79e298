"""One word, one thing: names of classes, functions, modules and tests, and the glossary."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "operator" / "shardwright"
IN_PODS = (
    PACKAGE / "rendering" / "programs"
)  # programs by themselves, whose text is part of the hash of a template
TREES = {
    path: ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
    if IN_PODS not in path.parents
}

ON_THE_WIRE_AND_BELOW: Final = {"Workload", "KvOffload", "Objective"}
"""One thing in two forms: as a resource has it (``api``), and as the planner reads it."""

OPAQUE: Final = re.compile(
    r"test_(it|they|this|that|its|those|others|nor|setting_it|one_of|one_(that|whose)|so_(is|does))_"
)
"""Beginnings that only a file or the test above explains: a failure is read without them."""

TEST_NAME_MAX: Final = 90
"""Characters of a test's name; assumed: what stays on one line of a report beside its file."""

A_BUILDER: Final = re.compile(r"an?_")
"""The beginning of a name that says "one of these", so all files must mean the same by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A public class or function of a module."""

    name: str
    module: Path
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_two_classes_share_a_name() -> None:
    by_name = defaultdict(list)
    for item in _classes():
        by_name[item.name].append(str(item.module.relative_to(PACKAGE)))

    assert {
        name: at
        for name, at in by_name.items()
        if len(at) > 1 and name not in ON_THE_WIRE_AND_BELOW
    } == {}


def test_an_alias_of_a_type_means_the_same_everywhere_and_is_no_class() -> None:
    meanings = defaultdict(set)
    for item in _classes():
        meanings[item.name].add("a class")
    for name, value in _aliases():
        meanings[name].add(value)

    assert {name: values for name, values in meanings.items() if len(values) > 1} == {}


def test_a_function_that_is_named_as_a_class_makes_one() -> None:
    classes = _by_snake()

    assert [
        f"{function.module.relative_to(PACKAGE)}: {function.name}"
        for function in _functions()
        for meant in classes.get(function.name, ())
        if not _belong_together(function, meant)
    ] == []


def test_a_module_that_is_named_as_a_class_of_its_package_holds_it_or_makes_it() -> None:
    classes, functions = (_by_snake(), {(item.module, item.name) for item in _functions()})

    assert [
        str(module.relative_to(PACKAGE))
        for module in TREES
        if (
            homes := [
                item.module
                for item in classes.get(module.stem, ())
                if item.module.parent == module.parent
            ]
        )
        and module not in homes
        and (module, module.stem) not in functions
    ] == []


def test_no_two_rooms_have_a_file_of_one_name() -> None:
    """Files of one room may, where each engine answers the same question."""
    rooms = defaultdict(set)
    for module in TREES:
        if not module.stem.startswith("__"):
            rooms[module.name].add(module.relative_to(PACKAGE).parts[0])

    assert {name: at for name, at in rooms.items() if len(at) > 1} == {}


def test_a_word_stands_in_the_glossary_once() -> None:
    words = re.findall(
        r"^\| ([\w /-]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )

    assert sorted({word for word in words if words.count(word) > 1} - {"word"}) == []


def test_a_tests_name_states_its_fact_without_its_file() -> None:
    assert [f"{file}: {name}" for file, name in _tests() if OPAQUE.match(name)] == []


def test_a_tests_name_is_no_longer_than_a_line() -> None:
    assert [f"{file}: {name}" for file, name in _tests() if len(name) > TEST_NAME_MAX] == []


def _tests() -> Iterator[tuple[Path, str]]:
    for module in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                yield module.relative_to(ROOT), node.name


def _classes() -> Iterator[Named]:
    return (item for item in _public() if isinstance(item.node, ast.ClassDef))


def _functions() -> Iterator[Named]:
    return (item for item in _public() if not isinstance(item.node, ast.ClassDef))


def _public() -> Iterator[Named]:
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith("_"):
                yield Named(name=node.name, module=module, node=node)


def _aliases() -> Iterator[tuple[str, str]]:
    """Yield names as of classes that are given to other types; ``dict`` and ``Mapping`` differ in
    who may change it only.
    """
    for node in (
        node for tree in TREES.values() for node in tree.body if isinstance(node, ast.Assign)
    ):
        if isinstance(node.targets[0], ast.Name) and re.match(r"[A-Z][a-z]", node.targets[0].id):
            value = ast.unparse(node.value)
            if not value.startswith("TypeVar("):
                yield node.targets[0].id, re.sub(r"^Mapping\b", "dict", value)


def _by_snake() -> Mapping[str, list[Named]]:
    found = defaultdict(list)
    for item in _classes():
        found[_snake(item.name)].append(item)
    return found


def _belong_together(function: Named, meant: Named) -> bool:
    """``estimate() -> Estimate`` makes it; ``MakePlan`` is what ``make_plan`` answers; a command is
    named by its word.
    """
    if isinstance(function.node, ast.ClassDef) or function.node.returns is None:
        return False
    returns = ast.unparse(function.node.returns)
    return (
        re.search(rf"\b{meant.name}\b", returns) is not None
        or meant.module.name == "planner_work.py"
        or returns == "Exit"
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def test_no_two_builders_of_the_tests_share_a_name() -> None:
    by_name = defaultdict(list)
    for module, name in _functions_of_tests("builders_*.py"):
        by_name[name].append(str(module))

    assert {name: at for name, at in by_name.items() if len(at) > 1} == {}


def test_no_test_file_defines_another_thing_under_the_name_of_a_builder() -> None:
    functions = list(_functions_of_tests())
    builders = {
        name
        for module, name in functions
        if module.stem.startswith("builders_") and A_BUILDER.match(name)
    }

    assert [
        f"{module}: {name}"
        for module, name in functions
        if name in builders and not module.stem.startswith("builders_")
    ] == []


def _functions_of_tests(files: str = "*.py") -> Iterator[tuple[Path, str]]:
    for module in sorted((ROOT / "tests").rglob(files)):
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield module.relative_to(ROOT), node.name
