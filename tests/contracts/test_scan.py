"""``make scan`` scans the image, or says that it did not."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def scanned(folder: Path) -> subprocess.CompletedProcess[str]:
    tools = {"PATH": f"{folder}:/usr/bin:/bin"}
    words = ["make", "--no-print-directory", "scan", "IMAGE=example/operator:1.0"]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, **tools}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("scanner", "words"),
    [
        (
            "trivy",
            "image --exit-code 1 --severity HIGH,CRITICAL --ignore-unfixed example/operator:1.0",
        ),
        ("grype", "--fail-on high --only-fixed example/operator:1.0"),
    ],
)
def test_the_scanner_that_is_there_looks_at_the_image_and_what_it_finds_is_a_failure(
    tmp_path: Path, scanner: str, words: str
) -> None:
    tool = tmp_path / scanner
    tool.write_text('#!/bin/sh\necho "asked: $*"\nexit 1\n')
    tool.chmod(0o755)

    done = scanned(tmp_path)

    assert f"asked: {words}" in done.stdout.splitlines()
    assert done.returncode != 0


def test_without_a_scanner_nobody_is_told_that_nothing_was_found(tmp_path: Path) -> None:
    done = scanned(tmp_path)

    assert done.returncode != 0
    assert done.stderr.startswith("no scan was made: neither trivy nor grype is installed")
