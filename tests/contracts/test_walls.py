"""The walls between the rooms: a room that nobody has thought of is inside them, and the documents
draw them as they stand.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "operator" / "shardwright"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]

CLOCK_AND_IO: Final = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}
LIBRARIES: Final = {
    "argcomplete",
    "cryptography",
    "jinja2",
    "kopf",
    "kubernetes",
    "prometheus_client",
    "pydantic",
    "rich",
}
FILES_OF_PODS: Final = "shardwright.rendering.programs"


def text_under(heading: str, document: str) -> str:
    """Return what stands under a second-level heading."""
    return (ROOT / document).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def contract(words: str) -> dict[str, Any]:
    """Return the one contract with these words in its name."""
    (found,) = (item for item in CONTRACTS if words in item["name"])
    return dict(found)


def layers() -> list[set[str]]:
    """Return the rooms of each layer, the upper ones first."""
    return [set(layer.split(" | ")) for layer in contract("Layers")["layers"]]


def picture() -> list[str]:
    """Return the lines of the drawing of the layers."""
    return (
        text_under("The layers", "ARCHITECTURE.md")
        .split("```text\n")[1]
        .partition("```")[0]
        .strip()
        .splitlines()
    )


def rooms_of(line: str) -> set[str]:
    """Return the rooms that a line of the drawing names, before its remark."""
    return set(re.findall(r"\w+", re.split("[◇◆]", line)[0]))


def linted(folder: Path) -> str:
    """Return what import-linter says of a copy of the package, by the contracts as they stand."""
    program, config = (Path(sys.executable).parent / "lint-imports", ROOT / "pyproject.toml")
    command = [str(program), "--config", str(config), "--no-cache", "--no-logo"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_a_new_room_is_inside_every_wall_before_anybody_has_written_its_name(
    tmp_path: Path,
) -> None:
    shutil.copytree(
        PACKAGE,
        tmp_path / "shardwright",
        ignore=shutil.ignore_patterns("*.json", "*.j2", "__pycache__"),
    )
    room = tmp_path / "shardwright" / "anteroom"
    room.mkdir()
    (room / "__init__.py").touch()
    unwanted = CLOCK_AND_IO | LIBRARIES | {FILES_OF_PODS}
    (room / "desk.py").write_text("".join(f"import {name}\n" for name in sorted(unwanted)))
    (room / "chair.py").write_text("import shardwright.anteroom.table\n")
    (room / "table.py").write_text("def sit() -> None:\n    import shardwright.anteroom.chair\n")

    said = linted(tmp_path)

    assert set(re.findall(r"shardwright\.anteroom\.desk -> (\S+) \(l\.\d+\)", said)) == unwanted
    assert re.findall(r"^(.+) KEPT", said, re.MULTILINE) == []
    assert len(re.findall(r"^(.+) BROKEN", said, re.MULTILINE)) == len(CONTRACTS)


def test_the_picture_of_the_layers_is_the_contract() -> None:
    assert [rooms_of(line) for line in picture()] == layers()


def test_the_picture_calls_shell_what_may_use_clock_and_io() -> None:
    shells = {room for line in picture() if "◇" in line for room in rooms_of(line)}
    ways_through = contract("Pure core")["ignore_imports"]
    assert set(ways_through) == {f"shardwright.{room}.** -> *" for room in shells} | {
        "shardwright.rendering.programs.* -> *"  # not of this process
    }


def test_the_document_gives_each_library_the_home_that_its_contract_gives() -> None:
    text = " ".join(text_under("The layers", "ARCHITECTURE.md").split())
    told = {
        (library, home)
        for libraries, homes in re.findall(
            r"((?:`\w+`(?: and )?)+) only in ((?:`\w+/`(?: and )?)+)", text
        )
        for library in re.findall(r"\w+(?=`)", libraries)
        for home in re.findall(r"\w+(?=/`)", homes)
    }
    held = {
        (library, home.removeprefix("shardwright."))
        for item in CONTRACTS
        if item["type"] == "protected"
        for library in item["protected_modules"]
        for home in item["allowed_importers"]
    }
    assert told == held
    assert {library for library, _ in held} >= LIBRARIES


def test_every_room_has_a_row_that_says_what_it_is_for() -> None:
    rows = re.findall(
        r"^\|.+\| (`.+`) \|.+\|$", text_under("Where things go", "CONTRIBUTING.md"), re.MULTILINE
    )
    told = [room for row in rows for room in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(room for layer in layers() for room in layer)
