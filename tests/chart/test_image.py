"""The image without Docker: its steps are read from the Dockerfile, its contents are the wheel in a
clean environment.
"""

import getpass
import pwd
import re
import subprocess
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NoReturn

import pytest

import shardwright
from tests.harness import wheel
from tests.harness.controlplane import ControlPlane
from tests.support.builders_chart import ROOT, named, render

DOCKERFILE = (ROOT / "operator" / "Dockerfile").read_text().replace("\\\n", "")
ENVIRONMENT = dict(
    pair.split("=", 1) for pair in re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)[0].split()
)


def test_the_image_starts_what_the_chart_starts_under_the_same_user(
    control_plane: ControlPlane,
) -> None:
    pod = named(render(control_plane), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"

    assert DOCKERFILE.splitlines()[-3:] == [
        f"USER {user}",
        f"EXPOSE {' '.join(str(port['containerPort']) for port in container['ports'])}",
        f'CMD ["{container["command"][0]}"]',
    ]


def test_the_environment_is_copied_to_where_it_was_made_and_found_there() -> None:
    assert "RUN python3 -m venv --without-pip /opt/shardwright " in DOCKERFILE
    assert "COPY --from=build /opt/shardwright /opt/shardwright\n" in DOCKERFILE
    assert ENVIRONMENT["PATH"] == "/opt/shardwright/bin:$PATH"


def test_dependencies_come_hashed_from_the_lock_and_the_wheel_brings_none() -> None:
    installs = re.findall(
        r"&& pip --python /opt/shardwright/bin/python install (.*?)(?= +&&|$)",
        DOCKERFILE,
        re.MULTILINE,
    )
    quiet = "--no-cache-dir --disable-pip-version-check --no-index"

    assert [text.strip() for text in installs] == [
        f"{quiet} --find-links /build/wheels --require-hashes -r /build/requirements.lock",
        f"{quiet} --no-deps /build/*.whl",
    ]


def test_the_base_is_an_argument_whose_default_is_pinned_by_digest() -> None:
    assert re.search(r"^ARG BASE=python:3\.11-slim@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_the_build_context_is_what_is_copied_and_nothing_else() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) /build/\S*$", DOCKERFILE, re.MULTILINE)
    files = [
        "requirements.lock",
        "dist/shardwright-0.1.0-py3-none-any.whl",
        "dist/wheels/rich-13.9.4-py3-none-any.whl",
    ]
    files += ["dist/shardwright-0.1.0.tar.gz", "dist/wheels/index.html", ".git/config"]
    files += [
        "requirements-dev.lock",
        "README.md",
        "operator/shardwright/units.py",
        ".venv/lib/x.whl",
        "build/x.whl",
    ]

    assert copied == ["requirements.lock", "dist/*.whl", "dist/wheels/*.whl"]
    wanted = [
        file for file in files if any(_matches(PurePosixPath(file), source) for source in copied)
    ]
    assert [file for file in files if _sent(file)] == wanted
    assert [file for file in files if _sent(file)] == files[:3]


@pytest.mark.parametrize("program", ["shardwright", "kubectl-shardwright"])
def test_the_command_line_works_from_the_wheel(program: str) -> None:
    assert _run(program, "version") == f"shardwright {shardwright.__version__}\n"


def test_the_operator_starts_from_the_wheel_and_tells_its_flags() -> None:
    assert _run("shardwright-operator", "--help").startswith("usage: shardwright-operator [-h]")


def test_the_wheel_brings_the_files_that_the_operator_reads() -> None:
    assert "meta-llama/Llama-3.1-405B-Instruct" in _run(
        "shardwright", "models", "--search", "405B-Instruct"
    )


def test_a_user_that_the_machine_does_not_know_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image has no entry for the uid, and kopf, asked for nothing, looks up the name of its
    user when it starts.
    """

    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ENVIRONMENT.keys() - {"PATH"}:
        monkeypatch.setenv(name, ENVIRONMENT[name])

    assert getpass.getuser() == "shardwright"


def _run(*words: str) -> str:
    """Run a program of the wheel's environment as a container would: with nothing of this process's
    environment.
    """
    programs = wheel.environment() / "bin"
    clean = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return subprocess.run(
        [str(programs / words[0]), *words[1:]],
        env=clean,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _sent(file: str) -> bool:
    """Return whether a file is part of the build context: of the patterns in .dockerignore the last
    that matches decides.
    """
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        whole = PurePosixPath(file)
        if not line.startswith("#") and any(
            _matches(path, pattern) for path in (whole, *whole.parents)
        ):
            sent = line.startswith("!")
    return sent


def _matches(path: PurePosixPath, pattern: str) -> bool:
    parts, wanted = path.parts, PurePosixPath(pattern).parts
    return len(parts) == len(wanted) > 0 and all(map(fnmatch, parts, wanted))
