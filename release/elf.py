"""What a root filesystem is made for: the machine of every program in it, and the libraries that
each asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from tests.harness.errors import HarnessError

_MACHINES: Final = {"amd64": "EM_X86_64", "arm64": "EM_AARCH64"}


def check(root: Path, architecture: str) -> int:
    """Raise where a program or library is for another machine, or asks for a library that is not
    there; return their number.
    """
    files = {
        path: dict(_read(path))
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and _is_elf(path)
    }
    present = {path.name for path in root.rglob("*.so*")}
    wrong = [
        f"{path.relative_to(root)} is for {said['machine']}"
        for path, said in files.items()
        if said["machine"] != _MACHINES[architecture]
    ]
    wrong += [
        f"{path.relative_to(root)} needs {name}"
        for path, said in files.items()
        for name in said["needed"].split()
        if name not in present
    ]
    if wrong or not files:
        raise HarnessError(
            f"the root for {architecture} does not hold together: "
            f"{'; '.join(wrong) or 'there is no program in it'}"
        )
    return len(files)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _read(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        yield "machine", elf["e_machine"]
        section = elf.get_section_by_name(".dynamic")
        tags = section.iter_tags("DT_NEEDED") if isinstance(section, DynamicSection) else ()
        yield "needed", " ".join(str(vars(tag)["needed"]) for tag in tags)
