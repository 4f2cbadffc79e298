"""Where a release comes from and goes to, which version it is, and which time its files carry."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

import yaml

import shardwright
from tests.harness import build
from tests.harness.errors import HarnessError
from tests.kind.shell import run

ROOT: Final = Path(__file__).parent.parent
OUT: Final = ROOT / "dist" / "release"
WORK: Final = ROOT / "build" / "release"
"""What is unpacked and tried out; of no use afterwards."""

CHART: Final = ROOT / "charts" / "shardwright"
VERSION: Final = shardwright.__version__
ARCHITECTURES: Final = ("amd64", "arm64")


def downloads() -> Path:
    """`$XDG_CACHE_HOME/shardwright/release`: downloads, by their digests."""
    folder = build.cache_folder().parent / "release"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def epoch() -> int:
    """Seconds since 1970 that every file of the release carries: SOURCE_DATE_EPOCH, else the time
    of the commit.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH") or run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    )
    return int(given)


@cache
def commit() -> str:
    """The commit of the checkout."""
    return run(["git", "-C", ROOT, "rev-parse", "HEAD"]).strip()


def check_one_version() -> None:
    """Raise where the chart or the changelog is of another version than the package."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    tag = os.environ.get("RELEASE_TAG") or f"v{VERSION}"
    stated = {
        "RELEASE_TAG": tag.removeprefix("v"),
        "version of Chart.yaml": chart["version"],
        "appVersion of Chart.yaml": chart["appVersion"],
    }
    wrong = [f"{place} is {version}" for place, version in stated.items() if version != VERSION]
    if not re.search(
        rf"^## {re.escape(VERSION)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        wrong.append(f"CHANGELOG.md has no section {VERSION}")
    if wrong:
        raise HarnessError(f"the package is {VERSION}, but {'; '.join(wrong)}")
