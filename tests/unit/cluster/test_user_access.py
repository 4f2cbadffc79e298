"""How a user of the command line gets in: several kubeconfigs, and flags that override them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cluster.access import named_in_kubeconfig, open_connection
from shardwright.cluster.calls import Call
from shardwright.cluster.connection import AccessError, Connection, LoginError
from shardwright.cluster.resources import NODES
from shardwright.cluster.transport import Transport


def _write(folder: Path, name: str, **parts: Any) -> str:
    file = folder / name
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts}))
    return str(file)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two kubeconfigs: the clusters stand in one, the contexts in the other."""
    clusters = [
        {"name": "a", "cluster": {"server": "http://127.0.0.1:1"}},
        {"name": "b", "cluster": {"server": "http://127.0.0.1:2/"}},
    ]
    users = [
        {"name": "ada", "user": {"token": "of-ada"}},
        {"name": "bob", "user": {"token": "of-bob"}},
    ]
    contexts = [
        {"name": "prod", "context": {"cluster": "a", "user": "ada", "namespace": "team"}},
        {"name": "test", "context": {"cluster": "b", "user": "bob"}},
    ]
    first = _write(tmp_path, "first", clusters=clusters)
    second = _write(
        tmp_path, "second", users=users, contexts=contexts, **{"current-context": "prod"}
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join((first, str(tmp_path / "missing"), second)))
    return tmp_path


def _opened(**flags: Any) -> tuple[str, str | None, str, str]:
    found = open_connection(Connection(**flags))
    return (found.server, found.access.credentials().authorization, found.context, found.namespace)


@pytest.mark.usefixtures("files")
def test_a_list_of_kubeconfigs_is_one() -> None:
    assert _opened() == ("http://127.0.0.1:1", "Bearer of-ada", "prod", "team")
    assert sorted(named_in_kubeconfig(None, "contexts")) == ["prod", "test"]


@pytest.mark.parametrize(
    ("order", "opened"),
    [
        (("test", "prod"), "test"),
        (("prod", "test"), "prod"),
        (("test", "prod", ""), "test"),
        (("", "prod", "test"), "prod"),
    ],
    ids=str,
)
def test_the_first_context_that_a_list_of_kubeconfigs_names_is_current(
    order: tuple[str, ...], opened: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naming = [_write(files, f"naming-{name}", **{"current-context": name}) for name in order]
    rest = (str(files / "first"), str(files / "second"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join((*naming, *rest)))

    server = {"prod": "http://127.0.0.1:1", "test": "http://127.0.0.1:2"}[opened]
    assert _opened()[::2] == (server, opened)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("flags", "opened"),
    [
        ({"context": "test"}, ("http://127.0.0.1:2", "Bearer of-bob", "test", "default")),
        ({"cluster": "b"}, ("http://127.0.0.1:2", "Bearer of-ada", "prod", "team")),
        ({"user": "bob"}, ("http://127.0.0.1:1", "Bearer of-bob", "prod", "team")),
        ({"server": "http://127.0.0.1:3"}, ("http://127.0.0.1:3", "Bearer of-ada", "prod", "team")),
        ({"token": "typed"}, ("http://127.0.0.1:1", "Bearer typed", "prod", "team")),
        ({"namespace": "other"}, ("http://127.0.0.1:1", "Bearer of-ada", "prod", "other")),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_flags_override_the_context(flags: dict[str, Any], opened: tuple[str, ...]) -> None:
    assert _opened(**flags) == opened


def test_a_server_needs_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    assert _opened(server="https://127.0.0.1:6443/", token="t") == (
        "https://127.0.0.1:6443",
        "Bearer t",
        "",
        "default",
    )


@pytest.mark.parametrize(
    ("flags", "there"),
    [
        ({"context": "nope"}, "prod, test"),
        ({"cluster": "nope"}, "a, b"),
        ({"user": "nope"}, "ada, bob"),
    ],
    ids=("context", "cluster", "user"),
)
def test_a_name_that_no_kubeconfig_has_is_said_with_those_that_there_are(
    flags: dict[str, Any], there: str, files: Path
) -> None:
    (kind,) = flags
    with pytest.raises(AccessError) as raised:
        open_connection(Connection(**flags))

    assert str(raised.value) == (
        f"there is no {kind} nope in {files / 'first'}, {files / 'second'}"
    )
    assert raised.value.hint == f"there are: {there}"


def test_a_context_whose_user_or_cluster_is_missing_is_said_so(tmp_path: Path) -> None:
    context = {"name": "c", "context": {"cluster": "a", "user": "eve"}}
    cluster = {"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}
    current = {"current-context": "c"}
    one = _write(tmp_path, "one", contexts=[context], clusters=[cluster], **current)
    other = _write(tmp_path, "other", contexts=[context], **current)

    for file, said in ((one, "no user eve"), (other, "no cluster a")):
        with pytest.raises(AccessError, match=f"there is {said} in {file}") as raised:
            open_connection(Connection(kubeconfig=file))
        assert raised.value.hint == f"it has no {said.split()[1]} at all"


@pytest.mark.usefixtures("files")
def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(AccessError, match=r"/none.crt: No such file or directory"):
        open_connection(Connection(certificate_authority="/none.crt"))


def test_no_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"there is no kubeconfig: .*/none"):
        open_connection(Connection(kubeconfig=str(tmp_path / "none")))


def test_what_is_no_kubeconfig_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("clusters: 7\n")
    with pytest.raises(AccessError, match="not of the form that kubectl writes"):
        open_connection(Connection(kubeconfig=str(file)))


def test_a_context_whose_name_is_a_number_is_found(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        "numbered",
        clusters=[{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        contexts=[{"name": 5, "context": {"cluster": "a", "user": ""}}],
        **{"current-context": 5},
    )
    assert _opened(kubeconfig=file)[0] == "http://127.0.0.1:1"


LOGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
TOKEN = """\
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", \
"status": {"token": "t"}}'"""


def _logging_in(folder: Path, **login: Any) -> str:
    """Write a kubeconfig whose user gets credentials from a program."""
    return _write(
        folder,
        "cloud",
        clusters=[{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        users=[{"name": "eve", "user": {"exec": {**LOGIN, **login}}}],
        contexts=[{"name": "c", "context": {"cluster": "a", "user": "eve"}}],
        **{"current-context": "c"},
    )


@pytest.mark.parametrize(
    ("login", "said", "hint"),
    [
        (
            {"command": "no-such-login", "installHint": "Install it\n with apt.\n"},
            "no-such-login is not installed",
            "Install it with apt",
        ),
        (
            {"command": "sh", "args": ["-c", "echo session over >&2; exit 7"]},
            "sh fails: exec: process returned 7. session over",
            "",
        ),
        (
            {"command": "sh", "args": ["-c", "echo no answer"]},
            "sh fails: exec: failed to decode process output: ",
            "",
        ),
    ],
    ids=["missing", "fails", "talks"],
)
def test_a_program_that_gives_no_credentials_is_named(
    login: dict[str, Any], said: str, hint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LoginError) as found:
        open_connection(Connection(kubeconfig=_logging_in(tmp_path, **login)))
    assert str(found.value).startswith(said)
    assert (found.value.hint, capfd.readouterr()) == (hint, ("", ""))


def test_the_credentials_of_a_program_or_of_a_flag_are_used(tmp_path: Path) -> None:
    gives = _logging_in(tmp_path, command="sh", args=["-c", TOKEN])
    assert _opened(kubeconfig=gives)[1] == "Bearer t"
    fails = _logging_in(tmp_path, command="no-such-login")
    assert _opened(kubeconfig=fails, token="mine")[1] == "Bearer mine"


@pytest.mark.usefixtures("files")
def test_every_group_of_an_impersonated_user_has_a_header_of_its_own() -> None:
    access = open_connection(Connection(as_user="eve", as_groups=("ops", "ml"))).access
    transport = Transport(access, lambda *_: None, lambda: True)
    headers = transport._headers(
        Call(verb="list", resource=NODES, path="/api/v1/nodes", method="GET")
    )

    sent = [(name, value) for name, value in headers.items() if name.startswith("Impersonate")]
    assert sent == [
        ("Impersonate-User", "eve"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "ml"),
    ]
