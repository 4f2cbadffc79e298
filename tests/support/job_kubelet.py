"""Plays the kubelet for the Job that reads a config: runs what its containers say, for real, and
writes what came of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for

OPERATOR = Path(__file__).parents[2] / "operator"
IMAGE_COMMAND = ["python", "-m", "shardwright.hub"]
MESSAGE_BYTES = 4096
"""What a kubelet takes of a termination message."""


def run_pod_of(control_plane: ControlPlane, namespace: str, job: str) -> None:
    """Wait for the pod that a Job has, run its containers one after the other, and let it end as
    they do.
    """
    pods = f"/api/v1/namespaces/{namespace}/pods"
    selector = f"batch.kubernetes.io/job-name={job}"
    (pod,) = wait_for(
        lambda: control_plane.api.get(pods, labelSelector=selector)["items"],
        30,
        f"the pod of {job}",
    )
    spec = pod["spec"]
    with tempfile.TemporaryDirectory() as shared:
        first = [
            _run(control_plane, namespace, container, Path(shared))
            for container in spec["initContainers"]
        ]
        failed = any(_exit_code(status) for status in first)
        then = (
            []
            if failed
            else [
                _run(control_plane, namespace, container, Path(shared))
                for container in spec["containers"]
            ]
        )
    failed = failed or any(_exit_code(status) for status in then)
    phase = "Failed" if failed else "Succeeded"
    status = {"phase": phase, "initContainerStatuses": first, "containerStatuses": then}
    control_plane.api.patch(f"{pods}/{pod['metadata']['name']}/status", {"status": status})


def _exit_code(status: Manifest) -> int:
    return int(status["state"]["terminated"]["exitCode"])


def _run(
    control_plane: ControlPlane, namespace: str, container: Manifest, shared: Path
) -> Manifest:
    assert container["command"] == IMAGE_COMMAND
    message = shared / f"message-of-{container['name']}"
    message.touch()
    given = {item["name"]: _value(control_plane, namespace, item) for item in container["env"]}
    ours = {
        "PYTHONPATH": str(OPERATOR),
        "SHARDWRIGHT_MESSAGE_FILE": str(message),
        "SHARDWRIGHT_FOLDER": str(shared),
    }
    command = [sys.executable, *IMAGE_COMMAND[1:], *container["args"]]
    ended = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **given, **ours}, cwd=shared, check=False
    )
    said = message.read_text()[:MESSAGE_BYTES]
    state = {"terminated": {"exitCode": ended.returncode, "reason": "Completed", "message": said}}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }


def _value(control_plane: ControlPlane, namespace: str, item: Manifest) -> str:
    """Return a variable as the kubelet makes it: of a Secret, or as it stands."""
    if "value" in item:
        return str(item["value"]).replace("$$", "$")
    reference: dict[str, Any] = item["valueFrom"]["secretKeyRef"]
    secret = control_plane.api.get(f"/api/v1/namespaces/{namespace}/secrets/{reference['name']}")
    return b64decode(secret["data"][reference["key"]]).decode()
