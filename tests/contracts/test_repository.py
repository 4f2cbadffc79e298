"""Promises that the repository makes about itself."""

import ast
import functools
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "operator" / "shardwright"
MODULES = sorted(PACKAGE.rglob("*.py"))
SHELL = ("cluster", "hub", "controller", "cli")
PURE = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] not in SHELL]
LEAST_OF_A_THEORY = 45
"""Words in which a package says how its modules work together."""
SMALL = ("imports",)
MOST_OF_A_MODULE = 310
"""Statements."""
MOST_OF_A_FUNCTION = 30
"""Statements, those of the functions in it included."""
LONGEST_BODY = 38
"""Lines of a function without its docstring, those of the functions in it included."""
NEED_A_REGISTRY = (
    "image",
    "publish",
)  # of a user's own: `make release` proves the same image on one of loopback


def test_operator_is_a_source_root_and_not_a_package() -> None:
    """The standard library has a module of that name; a package would break `import collections`
    from here.
    """
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_module_is_read_in_one_sitting() -> None:
    statements = {path.relative_to(PACKAGE): len(_statements(_tree(path))) for path in MODULES}
    assert {path: count for path, count in statements.items() if count > MOST_OF_A_MODULE} == {}


def test_every_function_does_one_thing() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {count}"
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (count := len(_statements(node)) - 1) > MOST_OF_A_FUNCTION
    ]
    assert long == []


def test_every_function_is_seen_as_a_whole() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {lines}"
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := _lines_of_body(node)) > LONGEST_BODY
    ]
    assert long == []


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _statements(tree: ast.AST) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _lines_of_body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from its name to its end, its docstring left out."""
    first, *_ = node.body
    said = 0 if ast.get_docstring(node) is None else _lines_of(first)
    return _lines_of(node) - said


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def test_every_package_says_how_it_works() -> None:
    packages = [path for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE]
    silent = [
        str(path.relative_to(PACKAGE))
        for path in packages
        if len((ast.get_docstring(_tree(path)) or "").split()) < LEAST_OF_A_THEORY
        and path.parent.name not in SMALL
    ]
    assert silent == []


def test_every_module_says_what_it_is_for() -> None:
    assert [
        str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))
    ] == []


def test_the_pure_core_reads_no_clock() -> None:
    """import-linter forbids `time` and `random`; `datetime` is a value, but `now` is a clock."""
    clock = re.compile(r"\.(now|utcnow|today)\(")
    assert [str(path) for path in PURE if clock.search(path.read_text())] == []


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "common", "helpers", "models", "types", "misc"}
    assert [
        str(path) for path in MODULES if path.stem in drawers or path.parent.name in drawers
    ] == []


def test_lock_files_hold_hashes_and_no_addresses() -> None:
    for name in (
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-aisimulate.lock",
        "requirements-audit.lock",
        "requirements-docs.lock",
        "tests/engine/requirements.lock",
        "tests/engine/engines.lock",
        "tests/mpi/requirements.lock",
    ):
        text = (ROOT / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text


def test_bare_make_prints_help() -> None:
    said = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "make" not in said.splitlines()[0]
    assert all(target in said for target in ("test", "demo", "lint", "setup", "generate"))
    assert "\x1b" not in said
    assert [line for line in said.splitlines() if len(line) > 100] == []
    assert [line for line in said.splitlines() if line[22:24] != "  "] == []


def test_ci_calls_the_commands_that_the_page_of_the_tests_lists() -> None:
    listed = (
        (ROOT / "docs/howto/run-the-tests.md")
        .read_text()
        .partition("## Targets that CI runs\n")[2]
        .partition("```sh\n")[2]
        .partition("```")[0]
    )
    commands_of_ci = [
        "make test",
        "make test-browser",
        "make recovery",
        "make crash-matrix POINTS=24 SEED=14",
        "make test-engine",
        "make demo DEMO=once",
        "make bench-operator-short",
        "make kind-test INSTALL=1",
    ]
    assert _commands_of_ci() == commands_of_ci
    assert listed.splitlines() == commands_of_ci


def test_what_the_readme_makes_is_made_in_ci() -> None:
    typed = re.findall(r"(?:^|`)make ([a-z -]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    targets = {target for words in typed for target in words.split()}
    run = {command.split()[1] for command in _commands_of_ci()}

    assert targets - run == {"setup", *NEED_A_REGISTRY}  # every target of CI begins with `setup`


def _commands_of_ci() -> list[str]:
    return [
        line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")
    ]
