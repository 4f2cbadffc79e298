"""Credentials that renew themselves."""

from pathlib import Path

import pytest
import yaml

from shardwright.cluster.access import open_access
from shardwright.cluster.connection import AccessError


def kubeconfig(folder: Path, user: dict[str, str]) -> Path:
    file = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_token_file_is_read_again_when_the_token_is_needed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = open_access(kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert access.credentials().authorization == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert access.credentials().authorization == "Bearer second"


def test_a_token_in_the_file_is_used_as_it_is(tmp_path: Path) -> None:
    access = open_access(kubeconfig(tmp_path, {"token": "fixed"}))
    assert access.credentials().authorization == "Bearer fixed"
    assert access.credentials().server == "https://127.0.0.1:1"


def test_a_folder_of_credentials_and_the_environment_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text("certificate")
    credentials = open_access(credentials_dir=tmp_path).credentials()
    assert credentials.server == "https://10.0.0.1:443"
    assert credentials.authorization == "bearer of-the-pod"
    assert credentials.ca_file == str(tmp_path / "ca.crt")


def test_no_way_in_says_so(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="no access to a cluster"):
        open_access(tmp_path / "missing")
