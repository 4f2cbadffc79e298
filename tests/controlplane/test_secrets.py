"""What is secret is in no output: a token, an API key, the operator's own token and its signing
key, through a whole life.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardwright.cli.main import main
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.invariants import of_texts
from tests.support.keys import SIGNING_KEY
from tests.support.models import LARGE, Models
from tests.support.operator import OPERATOR_USER, OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"
TOKEN, API_KEY = ("hf_canaryOfTheHubToken0123456789", "sk-canary-of-the-clients-0123456789")
ENGINES: dict[str, Manifest] = {
    "vLLM": {"apiKeySecretRef": {"name": "canary", "key": "api-key"}},
    "TensorRTLLM": {
        "name": "TensorRTLLM",
        "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1",
    },
}
MODEL: Manifest = {"id": LARGE, "weights": {"secretRef": {"name": "canary", "key": "token"}}}


@pytest.fixture
def operator(chart: ControlPlane) -> Iterator[OperatorProcess]:
    """One that says all that it can."""
    with OperatorProcess(chart, "--log-level=DEBUG") as running:
        yield running


def everything(control_plane: ControlPlane, namespace: str) -> str:
    """Return all objects of a namespace, with events and status; of Secrets not what is in them."""
    kinds = control_plane.kubectl(
        "api-resources", "--namespaced", "--verbs=list", "--output=name"
    ).split()
    names = ",".join(kind for kind in kinds if kind not in {"secrets", "bindings"})
    objects = control_plane.kubectl(
        "get", names, "-n", namespace, "-o", "json", "--show-managed-fields"
    )
    secrets = control_plane.kubectl(
        "get", "secrets", "-n", namespace, "-o", "jsonpath={.items[*].metadata}"
    )
    assert json.loads(objects)["items"]
    return objects + secrets


@pytest.fixture
def command_line(
    models: Models, control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[], str]:
    """Returns what the command line says of the model to somebody who may read all."""

    def say() -> str:
        file = tmp_path / "model.json"
        file.write_text(json.dumps(models.get("ShardedModel", "canary")))
        for command, output in (("plan", "json"), ("explain", "text"), ("render", "yaml")):
            main(
                [
                    command,
                    "-f",
                    str(file),
                    "--kubeconfig",
                    str(control_plane.kubeconfig),
                    "-o",
                    output,
                ]
            )
        return "".join(capsys.readouterr())

    return say


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_secret_is_in_no_output(
    engine: str,
    models: Models,
    operator: OperatorProcess,
    fleet: Fleet,
    control_plane: ControlPlane,
    command_line: Callable[[], str],
) -> None:
    canary = {"metadata": {"name": "canary"}, "stringData": {"token": TOKEN, "api-key": API_KEY}}
    models.post("Secret", {"apiVersion": "v1", "kind": "Secret", **canary})
    fleet(H100, 2)
    written = []

    models.create("canary", MODEL, engine=ENGINES[engine])
    models.wait_ready("canary")
    before = models.uids()
    control_plane.pods.crash(models.namespace, "canary-0-1", exit_code=77)
    wait_for(
        lambda: before.isdisjoint(models.uids()) and len(models.pods()) == 2, 60, "two new pods"
    )
    models.wait_ready("canary")
    written += [everything(control_plane, models.namespace), command_line()]

    before = models.uids()
    models.change("canary", engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    models.wait_ready("canary")
    assert before.isdisjoint(models.uids())
    written += [everything(control_plane, models.namespace), operator.get("/metrics")[1]]

    models.delete("ShardedModel", "canary")
    wait_for(lambda: not models.pods(), 60, "the pods to go with their model")
    written += [
        everything(control_plane, models.namespace),
        operator.get("/metrics")[1],
        operator.logs(),
    ]
    written += [json.dumps(event) for event in control_plane.audit_events()]

    text = "\n".join(written)
    assert "canary" in operator.logs()
    assert "secretKeyRef" in text
    (own,) = re.findall(r"[\"']?token[\"']?: *[\"']?([\w.-]+)", operator.kubeconfig.read_text())
    secrets = [TOKEN, API_KEY, SIGNING_KEY.strip(), own]
    spelled = [
        spelling
        for secret in secrets
        for spelling in (secret, b64encode(secret.encode()).decode().rstrip("=")[:-1])
    ]
    assert of_texts({"all that was written": text}, spelled) == []
    asked = control_plane.audit_events(OPERATOR_USER)
    assert {
        event["verb"]
        for event in asked
        if (event.get("objectRef") or {}).get("resource") == "secrets"
    } <= {"create"}
