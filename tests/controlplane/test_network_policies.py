"""What keeps others away from the ranks of a model: its NetworkPolicy, kept like all that it owns,
and its token.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.models import Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

POLICY = "large-network"
GATEWAY = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the administrator."""
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    _say(file)
    return file


@pytest.fixture(scope="module")
def operator(chart: ControlPlane, settings: Path) -> Iterator[OperatorProcess]:
    """An operator that compares everything every few seconds."""
    with OperatorProcess(chart, f"--settings-file={settings}", "--resync-seconds=2") as running:
        yield running


def test_a_policy_is_there_with_the_model_is_repaired_and_follows_what_the_administrator_says(
    serving: Models, settings: Path
) -> None:
    before = serving.uids()
    policy = serving.get("NetworkPolicy", POLICY)
    assert policy["spec"]["ingress"][1] == {
        "ports": [{"protocol": "TCP", "port": 8000}],
        "from": [{"podSelector": {}}],
    }

    serving.patch("NetworkPolicy", POLICY, {"spec": {"ingress": [{}]}})
    wait_for(
        lambda: serving.get("NetworkPolicy", POLICY)["spec"] == policy["spec"],
        15,
        "the policy to be repaired",
    )

    serving.delete("NetworkPolicy", POLICY)
    wait_for(lambda: serving.find("NetworkPolicy", POLICY), 15, "another policy")

    _say(
        settings,
        clients=[GATEWAY],
        egress={"restricted": True, "rules": [{"ports": [{"port": 443}]}]},
    )
    wait_for(
        lambda: serving.get("NetworkPolicy", POLICY)["spec"]["ingress"][1]["from"] == [GATEWAY],
        30,
        "what the administrator says",
    )
    spec = serving.get("NetworkPolicy", POLICY)["spec"]
    assert spec["egress"][2] == {"ports": [{"protocol": "TCP", "port": 443}]}

    _say(settings, enabled=False)
    wait_for(lambda: serving.find("NetworkPolicy", POLICY) is None, 30, "the end of the policy")
    assert serving.uids() == before


def test_the_token_of_a_group_is_made_once_and_mounted_by_every_rank(
    serving: Models, control_plane: ControlPlane
) -> None:
    (secret,) = [
        item for item in serving.all("Secret") if item["type"] == "shardwright.io/group-token"
    ]
    token = b64decode(secret["data"]["token"]).decode()

    assert len(bytes.fromhex(token)) == 32
    assert {_secret_of(pod) for pod in serving.pods()} == {secret["metadata"]["name"]}
    read = ("get", "secret", secret["metadata"]["name"], "--namespace", serving.namespace)
    told = [
        serving.all(kind) for kind in ("ShardedModel", "Pod", "ConfigMap", "StatefulSet", "Event")
    ]
    assert token not in json.dumps(told)
    assert "cannot get resource" in control_plane.kubectl(
        *read, "--as=system:serviceaccount:shardwright-system:shardwright", check=False
    )


def _secret_of(pod: dict[str, Any]) -> str:
    (name,) = [
        volume["secret"]["secretName"]
        for volume in pod["spec"]["volumes"]
        if volume["name"] == "group"
    ]
    return str(name)


def _say(file: Path, **policy: Any) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"networkPolicy": policy}))
    partial.replace(file)
