"""A TensorRT-LLM model on two nodes: the key that nobody reads, and the life of a group, on the
real control plane.
"""

from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import LARGE, Models
from tests.support.operator import OPERATOR_USER

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
ENGINE: Manifest = {
    "name": "TensorRTLLM",
    "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1",
}


def key_of(models: Models) -> Manifest:
    (secret,) = [item for item in models.all("Secret") if item["type"] == "shardwright.io/ssh-key"]
    return secret


def test_a_model_on_two_nodes_has_a_key_of_its_own_lives_as_one_and_leaves_nothing_behind(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet(H100, 2)
    models.create("large", LARGE, engine=ENGINE)
    status = models.wait_ready("large")["status"]
    engine = {"name": "TensorRTLLM", "version": "1.2.1", "image": ENGINE["image"]}
    assert {
        name: value for name, value in status["engine"].items() if name != "startBudget"
    } == engine

    secret, group = key_of(models), models.get("StatefulSet", "large-0")
    mounted = {volume["name"]: volume for volume in group["spec"]["template"]["spec"]["volumes"]}
    assert mounted["ssh"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert secret["metadata"]["ownerReferences"][0]["name"] == "large"
    private = load_ssh_private_key(b64decode(secret["data"]["id_ed25519"]), password=None)
    assert isinstance(private, Ed25519PrivateKey)
    line = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert b64decode(secret["data"]["id_ed25519.pub"]).decode() == f"{line} shardwright\n"
    scripts = models.get("ConfigMap", mounted["scripts"]["configMap"]["name"])["data"]
    assert {"trtllm.yaml", "ssh_config", "sshd_config", "passwd", "remote.sh"} < set(scripts)
    ports = models.get("Service", "large-0-peers")["spec"]["ports"]
    assert [(port["name"], port["port"]) for port in ports] == [("ssh", 2222)]

    before = models.uids()
    control_plane.pods.crash(models.namespace, "large-0-1", exit_code=77)
    wait_for(
        lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 60, "two new pods"
    )
    models.wait_ready("large")
    assert key_of(models)["metadata"]["uid"] == secret["metadata"]["uid"]

    models.delete("ShardedModel", "large")
    wait_for(
        lambda: not models.all("Secret") and not models.pods(),
        60,
        "the key and the pods to go with their model",
    )
    asked = {
        event["verb"]
        for event in control_plane.audit_events(OPERATOR_USER)
        if (event.get("objectRef") or {}).get("resource") == "secrets"
    }
    assert asked == {"create"}
