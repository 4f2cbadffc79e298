"""The real streamer reads a real S3 server on loopback, by nothing but what a pod is told.

vLLM's parser, configuration and loader run, and Run:ai's streamer under them; the server is rclone's,
which wants the right key and has a certificate that only the ConfigMap's bundle vouches for.
"""

import ipaddress
import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import IPAddress

from shardwright.layouts.layout import Layout
from shardwright.rendering.deployment import ConfigMapKey, ObjectStore
from shardwright.rendering.pod import script_settings
from shardwright.rendering.render import render
from shardwright.rendering.volumes import CA_DIR
from tests.engine import environment
from tests.engine.checker import PREFIX
from tests.engine.launches import VERSIONS
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan_of
from tests.support.builders_plan import CONFIGS
from tests.support.certificates import self_signed
from tests.support.rendered import engine_of

KEYS = {"AWS_ACCESS_KEY_ID": "engine", "AWS_SECRET_ACCESS_KEY": "of-the-secret"}
TENSORS = {"model.norm.weight": [1.0, 2.5, -3.0], "lm_head.weight": [0.5]}
START_SECONDS = 60
READ_SECONDS = 600
LISTS = "import sys, runai_model_streamer as s; s.list_safetensors(sys.argv[1])"
"""What the engine begins with, without the import of vLLM."""

pytestmark = pytest.mark.timeout(2 * READ_SECONDS)


@dataclass(frozen=True)
class Server:
    """A server that speaks S3, and the certificate to trust it by."""

    endpoint: str
    certificate: Path


@pytest.fixture(scope="module")
def installed() -> environment.Environment:
    found = environment.installed()
    assert found is not None, "the engine is not installed: run `make test-engine`"
    return found


@pytest.fixture(scope="module")
def server(
    installed: environment.Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("store")
    model = folder / "buckets" / "models" / "llama" / "8b"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIGS["llama-8b"]))
    (model / "tokenizer_config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(safetensors(TENSORS))
    loopback = IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    certificate, key = self_signed(folder, loopback)
    port = free_port()
    rclone = environment.streamer(installed) / "bin" / "rclone"
    keys = ",".join(KEYS.values())
    address = ["--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    tls = ["--cert", str(certificate), "--key", str(key)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [rclone, "serve", "s3", *address, *tls, folder / "buckets"], stderr=log
        )
    try:
        wait_for(lambda: answers(port), START_SECONDS)
        yield Server(endpoint=f"https://127.0.0.1:{port}", certificate=certificate)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_engine_reads_configuration_and_weights_by_what_its_pod_is_told(
    version: str, installed: environment.Environment, server: Server, tmp_path: Path
) -> None:
    done = read(version, installed, server, tmp_path, KEYS)

    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [one for one in done.stdout.splitlines() if one.startswith(PREFIX)]
    found = json.loads(line.removeprefix(PREFIX))
    assert found.pop("folder").startswith(f"{tmp_path}/cache/")  # never the image
    assert found == {
        "loader": "RunaiModelStreamerLoader",
        "weights": "s3://models/llama/8b",
        "files": ["config.json", "tokenizer_config.json"],
        "served": "meta-llama/Llama-3.1-8B-Instruct",
        "layers": 32,
        "tensors": TENSORS,
    }


def test_a_wrong_key_is_refused_by_the_server_and_the_engine_says_so(
    installed: environment.Environment, server: Server, tmp_path: Path
) -> None:
    wrong = KEYS | {"AWS_SECRET_ACCESS_KEY": "another"}

    done = read(None, installed, server, tmp_path, wrong)

    assert done.returncode != 0
    assert "SignatureDoesNotMatch" in done.stderr


def test_without_the_bundle_nobody_vouches_for_the_server(
    installed: environment.Environment, server: Server, tmp_path: Path
) -> None:
    done = read(None, installed, server, tmp_path, KEYS, bundle=False)

    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def read(
    version: str | None,
    installed: environment.Environment,
    server: Server,
    home: Path,
    keys: dict[str, str],
    *,
    bundle: bool = True,
) -> "subprocess.CompletedProcess[str]":
    """Return what came of reading in an environment of nothing but the pod's variables; without
    a version the streamer lists the weights alone.
    """
    store = ObjectStore(
        uri="s3://models/llama/8b",
        secret="store",
        endpoint=server.endpoint,
        region="eu-central-1",
        virtual_host=False,
        authority=ConfigMapKey(name="authority", key="ca.crt") if bundle else None,
        concurrency=4,
        buffer_bytes=10**9,
    )
    deployment = a_deployment(
        model="meta-llama/Llama-3.1-8B-Instruct", object_store=store, load_format="runai_streamer"
    )
    plan = a_plan_of(Layout())
    engine = engine_of(render(plan, deployment))
    by_script = [
        {"name": name, "value": value}
        for name, value in script_settings(plan, deployment).variables
    ]
    folders = {"/cache": str(home / "cache"), f"{CA_DIR}/ca.crt": str(server.certificate)}
    variables = {
        item["name"]: value_of(item, keys, folders)
        for item in (*engine["env"], *by_script)
        if not is_left_out(item)
    }
    streamer = environment.streamer(installed)
    unpacked = installed.variables(version) if version else {}
    paths = [*filter(None, [unpacked.get("PYTHONPATH")]), str(streamer)]
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths)}
    program = [Path(__file__).with_name("reading.py")] if version else ["-c", LISTS]
    return subprocess.run(
        [installed.python, *program, *engine["args"]],
        env=variables | unpacked | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=READ_SECONDS,
        cwd=home,
    )


def is_left_out(item: dict[str, Any]) -> bool:
    """Return whether a variable is of the pod itself, or its Secret lacks what it may lack."""
    source = item.get("valueFrom", {})
    return "fieldRef" in source or bool(source.get("secretKeyRef", {}).get("optional"))


def value_of(item: dict[str, Any], keys: dict[str, str], folders: dict[str, str]) -> str:
    if "value" not in item:
        return keys[item["valueFrom"]["secretKeyRef"]["key"]]
    value = str(item["value"])
    for inside, outside in folders.items():
        value = outside + value.removeprefix(inside) if value.startswith(inside) else value
    return value


def safetensors(tensors: dict[str, list[float]]) -> bytes:
    """Return a file of such tensors: the length of a header, the header, the numbers."""
    header, data = {}, b""
    for name, values in tensors.items():
        begin, data = len(data), data + struct.pack(f"<{len(values)}f", *values)
        shape, where = [len(values)], [begin, len(data)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": where}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
