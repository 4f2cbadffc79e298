"""What the operator's process writes is one JSON object a line, always, whoever writes it."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardwright.controller.process_settings import FIELDS, JsonLines
from shardwright.sinks import in_log
from tests.support.hostile_text import HOSTILE

ROOT = Path(__file__).parents[3]


def written(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a program; return its exit code and the JSON objects that it has written, one a line."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}",
        "PYTHONWARNINGS": "default",
        "PYTHONUTF8": "1",
    }
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=120,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.decode().splitlines()]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a cluster that does not answer."""
    path = tmp_path / "kubeconfig"
    user, cluster = (
        {"name": "x", "user": {"token": "x"}},
        {"name": "x", "cluster": {"server": "http://127.0.0.1:9"}},
    )
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    content = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    path.write_text(
        json.dumps({**content, "users": [user], "clusters": [cluster], "contexts": [context]})
    )
    return path


def test_each_line_of_the_operator_is_a_json_object_whatever_goes_wrong_in_it(
    kubeconfig: Path,
) -> None:
    code, lines = written("tests.support.provoking", str(kubeconfig))

    assert code == 1
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    texts = [
        value
        for line in lines
        for key, value in line.items()
        if isinstance(value, str) and key != "exception"
    ]
    assert all(text.isprintable() for text in texts)
    assert all(
        line["exception"].replace("\n", "").isprintable() for line in lines if "exception" in line
    )
    said = "\n".join(
        f"{line['logger']}: {line['message']} {line.get('exception', '').replace(chr(10), ' ')}"
        for line in lines
    )
    for where in (
        "in a callback",
        "in a task",
        "in a destructor",
        "in a thread",
        "after the end with 0",
    ):
        assert f"Provoked: {where}" in said, where
    for words in (
        "a warning\\nof two lines",
        "of kopf\\n\\x1b[31m",
        "of asyncio",
        "was never awaited",
        "%d does not fit ('a word',)",
    ):
        assert words in said, words
    assert set(map(in_log, HOSTILE.values())) <= {line["message"] for line in lines}
    assert any(line["message"] == "a bad number" and line["seconds"] == "nan" for line in lines)
    assert [
        line["message"] for line in lines if line["logger"] == "shardwright.controller.operator"
    ][-1] == "stopped"


def test_a_command_line_that_cannot_be_used_is_said_in_the_log() -> None:
    (line,) = written("shardwright.controller", "--port", "\x1b[31m")[1]
    assert line["message"].startswith(
        "the command line cannot be used: argument --port: invalid int value: "
    )
    assert written("shardwright.controller", "--worker\n")[0] == 2


def test_each_problem_of_the_settings_is_a_line_of_its_own(
    kubeconfig: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("unknownOne: 1\nunknownTwo: 2\n")
    code, lines = written(
        "shardwright.controller", "--kubeconfig", str(kubeconfig), "--settings-file", str(settings)
    )
    assert code == 2
    assert [
        (line["level"], line["message"].partition(" is not a setting")[0]) for line in lines
    ] == [
        ("critical", "the settings cannot be used: unknownOne:"),
        ("critical", "the settings cannot be used: unknownTwo:"),
    ]


def test_a_message_that_holds_a_line_of_the_log_is_still_one_message() -> None:
    record = logging.LogRecord(
        "shardwright", logging.INFO, "", 0, 'a\n{"level": "x"}\x1b[31m', (), None
    )
    record.key = "models/llama"
    line = JsonLines().format(record)
    assert "\n" not in line
    parsed = json.loads(line)
    assert (parsed["level"], parsed["message"], parsed["key"]) == (
        "info",
        'a\\n{"level": "x"}\\x1b[31m',
        "models/llama",
    )


@pytest.mark.parametrize("sign", ["x", '"', "\n", "ä", "\U0001f600", "\x1b"], ids=ascii)
def test_a_line_is_shorter_than_what_container_runtimes_split(sign: str) -> None:
    long = sign * 20_000
    error = ValueError(long)
    record = logging.LogRecord(long, logging.CRITICAL, "", 0, long, (), (ValueError, error, None))
    vars(record).update(dict.fromkeys(FIELDS, long) | {"fields": [sign * 20] * 1000})
    line = JsonLines().format(record)
    assert len(line.encode()) < 1 << 14
    assert json.loads(line).keys() == {"time", "level", "logger", "message", "exception", *FIELDS}


def test_a_list_of_the_log_that_is_cut_says_so() -> None:
    record = logging.LogRecord("shardwright", logging.INFO, "", 0, "update", (), None)
    record.fields = ["spec.replicas"] * 3
    assert json.loads(JsonLines().format(record))["fields"] == ["spec.replicas"] * 3
    record.fields = ["spec.replicas"] * 1000
    assert json.loads(JsonLines().format(record))["fields"] == [*["spec.replicas"] * 30, "…"]


def test_a_disk_that_is_full_costs_the_log_and_nothing_else() -> None:
    """What cannot be written is lost; who has said it goes on."""
    say = (
        "import logging, shardwright.controller.process_settings as logs; logs.configure('INFO'); "
        "logging.critical('lost')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", f"{say}; import sys; sys.exit(7)"]
        assert (
            subprocess.run(
                command, env=environment, stdout=full, stderr=full, check=False, timeout=120
            ).returncode
            == 7
        )
