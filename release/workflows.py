"""The workflows of GitHub, read by actionlint and zizmor; nothing runs them here."""

from __future__ import annotations

import sys
from pathlib import Path

from release.places import ROOT
from tests.harness import build
from tests.kind.shell import run

_FOLDER = ROOT / ".github" / "workflows"


def check() -> str:
    """Raise where a workflow is wrong, or gives more away than it must."""
    files = sorted(_FOLDER.glob("*.yaml"))
    run([build.actionlint(), "-shellcheck", Path(sys.executable).parent / "shellcheck", *files])
    run(
        [
            Path(sys.executable).parent / "zizmor",
            "--offline",
            "--quiet",
            "--no-progress",
            "--persona=pedantic",
            *files,
        ]
    )
    return f"{', '.join(file.name for file in files)}: nothing found by actionlint and zizmor"
