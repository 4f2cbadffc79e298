"""The program of the Job that reads a config, run as the kubelet runs it, against a hub that
behaves and one that does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardwright.errors import Problem
from shardwright.modelspec.checkpoint_files import CheckpointFiles, read_handover
from tests.support.builders_model import a_config
from tests.support.loopback_hub import COMMIT, OLDER, LoopbackHub, Repository, a_hub, giving

OPERATOR = Path(__file__).parents[3] / "operator"
CONFIG = json.dumps(a_config()).encode()
INDEX = json.dumps(
    {"metadata": {"total_size": 8_030_261_248}, "weight_map": {"lm_head.weight": "a.safetensors"}}
).encode()
RESOLVED = "/us/ours/resolve/main/config.json"


@dataclass(frozen=True)
class Ended:
    """How a container has ended: its exit status, what it left, and what it wrote to its log."""

    status: int
    left: str
    log: str


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with a_hub(us__ours=Repository(files={"config.json": CONFIG})) as served:
        yield served


def run(hub: LoopbackHub, folder: Path, *words: str, **variables: str) -> Ended:
    message = folder / f"message-{len(words)}"
    ours = {
        "HOME": "/tmp",
        "SHARDWRIGHT_MESSAGE_FILE": str(message),
        "SHARDWRIGHT_FOLDER": str(folder),
    }
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(OPERATOR),
        "HF_ENDPOINT": hub.url,
        **ours,
        **variables,
    }
    command = [sys.executable, "-m", "shardwright.hub", *words]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return Ended(ended.returncode, message.read_text() if message.exists() else "", ended.stderr)


def said(hub: LoopbackHub, folder: Path, *words: str, **variables: str) -> str:
    """Return the problem that is left where there is no config, HUB in the place of its address."""
    ended = run(hub, folder, *words, **variables)
    found = read_handover(ended.left)
    assert ended.status == 1
    assert isinstance(found, Problem)
    return f"{found.code}: {found.sentence()}".replace(hub.url, "HUB").replace(
        hub.url.partition("://")[2], "HUB"
    )


def test_the_small_files_are_handed_over_by_two_containers_where_one_message_is_too_short(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    noise = [f"{number * 2654435761 % 2**32:08x}" for number in range(1_000)]
    files = {
        "config.json": json.dumps(a_config(noise=noise)).encode(),
        "model.safetensors.index.json": INDEX,
    }
    gated = Repository(
        files=files, gated=True, readers=frozenset({"hf_reader"}), on_content_host=frozenset(files)
    )
    hub.repositories["us/ours"] = gated

    first = run(hub, tmp_path, "us/ours", HF_TOKEN="hf_reader")
    rest = run(hub, tmp_path, "--rest")

    assert (first.status, rest.status, len(first.left)) == (0, 0, 4096)
    found = read_handover(first.left + rest.left)
    assert isinstance(found, CheckpointFiles)
    assert json.loads(found.files["config.json"]) == a_config(noise=noise)
    assert (found.commit, found.tensor_bytes) == (COMMIT, 8_030_261_248)
    assert [token for _, token in hub.content.seen] == [None, None]


def test_a_commit_that_is_named_is_read(hub: LoopbackHub, tmp_path: Path) -> None:
    older = a_config(num_hidden_layers=2)
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG}, older={"config.json": json.dumps(older).encode()}
    )

    found = read_handover(run(hub, tmp_path, "us/ours", OLDER).left)

    assert isinstance(found, CheckpointFiles)
    assert (found.commit, json.loads(found.files["config.json"])) == (OLDER, older)


GATED = Repository(files={"config.json": CONFIG}, gated=True, readers=frozenset({"hf_reader"}))
REFUSED = {
    "401 of nobody": (GATED, {}, "HubAccessDenied: 'us/ours' is gated on HUB"),
    "403 of a token": (
        GATED,
        {"HF_TOKEN": "hf_stranger"},
        "HubAccessDenied: 'us/ours' is gated on HUB",
    ),
    "401 of a token that is none": (
        GATED,
        {"HF_TOKEN": "hf_expired"},
        "HubAccessDenied: the token is not one of HUB",
    ),
    "404": (
        None,
        {"HF_TOKEN": "hf_reader"},
        "HubModelMissing: 'us/ours' is not on HUB, or is private",
    ),
    "a variable that is no address": (
        None,
        {"HF_ENDPOINT": "ftp://hub"},
        "HubSettingInvalid: HF_ENDPOINT is not the address of a hub",
    ),
}


@pytest.mark.parametrize(("repository", "variables", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_the_hub_refuses_is_left_as_a_problem_and_the_pod_fails(
    hub: LoopbackHub,
    tmp_path: Path,
    repository: Repository | None,
    variables: dict[str, str],
    sentence: str,
) -> None:
    hub.repositories = {} if repository is None else {"us/ours": repository}

    assert said(hub, tmp_path, "us/ours", **variables) == sentence


ODD = {
    "429": (
        giving(b"", 429, Retry_After="37"),
        "HubUnavailable: HUB answers 429: too many requests",
    ),
    "503": (giving(b"<html>", 503), "HubUnavailable: HUB answers 503"),
    "a huge answer": (
        lambda request: request.reply(200, b"{", Content_Length=str(10**12), X_Repo_Commit=COMMIT),
        "HubAnswerInvalid: config.json of HUB is larger than the limit of 4194304 bytes",
    ),
    "a redirect to itself": (
        giving(b"", 302, Location=RESOLVED),
        "HubAnswerInvalid: HUB redirects more than 5 times",
    ),
    "a redirect to a file": (
        giving(b"", 302, Location="file:///etc/passwd"),
        "HubAnswerInvalid: HUB redirects to an invalid address",
    ),
    "no JSON": (
        giving(b"<html>\x1b[31m", X_Repo_Commit=COMMIT),
        (
            "ConfigInvalid: us/ours is not the JSON of a config: Expecting value: line 1 column 1 "
            "(char 0)"
        ),
    ),
}


@pytest.mark.parametrize(("answer", "sentence"), ODD.values(), ids=ODD)
def test_what_no_hub_answers_is_left_as_a_problem(
    hub: LoopbackHub, tmp_path: Path, answer: object, sentence: str
) -> None:
    hub.answers[RESOLVED] = answer  # type: ignore[assignment]

    assert said(hub, tmp_path, "us/ours") == sentence


def test_the_token_is_neither_left_nor_logged(hub: LoopbackHub, tmp_path: Path) -> None:
    ended = run(hub, tmp_path, "us/none", HF_TOKEN="hf_stranger")

    assert "hf_stranger" not in ended.left + ended.log
    assert ended.log.startswith("shardwright: 'us/none' is not on ")
