"""Whoever is not let into a cluster is told in one line with the way out, and soon: before the planner
is loaded, and without a kubeconfig before the library that talks to a cluster is.
"""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
import yaml
from cryptography.x509 import IPAddress

from shardwright.cli import main as entry
from tests.support.builders_cli import Files, a_manifest
from tests.support.certificates import self_signed

SOURCES = Path(entry.__file__).parents[2]
HEAVY = (
    "kubernetes",
    "pydantic",
    "shardwright.planning",
    "shardwright.rendering",
    "shardwright.api.resource",
)
PROGRAM = (
    "import sys; from shardwright.cli.main import main; code = main(sys.argv[1:]); "
    f"loaded = [one for one in {HEAVY!r} if one in sys.modules]; "
    "print(code, *loaded)"
)
FORBIDDEN = (
    'nodes is forbidden: User "ada" cannot list resource "nodes" in API group "" at '
    "the cluster scope"
)


def _answering(code: int, reason: str, message: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"kind": "Status", "reason": reason, "message": message})
            self.send_response_only(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    return Handler


@contextmanager
def _serving(
    folder: Path, handler: type[BaseHTTPRequestHandler], *, tls: bool = False
) -> Iterator[str]:
    class Quiet(HTTPServer):
        def handle_error(self, *_: object) -> None:
            return

    server = Quiet(("127.0.0.1", 0), handler)
    if tls:
        certificate, key = self_signed(folder, IPAddress(ip_address("127.0.0.1")))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _refusing(folder: Path) -> Iterator[str]:
    with _serving(folder, _answering(401, "Unauthorized", "Unauthorized")) as url:
        yield url


@contextmanager
def _forbidding(folder: Path) -> Iterator[str]:
    with _serving(folder, _answering(403, "Forbidden", FORBIDDEN)) as url:
        yield url


@contextmanager
def _of_nobody(folder: Path) -> Iterator[str]:
    with _serving(folder, _answering(200, "", ""), tls=True) as url:
        yield url


@contextmanager
def _closed(folder: Path) -> Iterator[str]:
    with _serving(folder, _answering(200, "", "")) as url:
        pass
    yield url


def _kubeconfig(folder: Path, server: str) -> str:
    file = folder / "kubeconfig"
    parts = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts}))
    return str(file)


def _run(folder: Path, kubeconfig: str, *words: str) -> tuple[str, list[str]]:
    """Return what is said, and code and heavy modules of the process."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        check=False,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCES),
            "KUBECONFIG": kubeconfig,
        },
    )
    return ended.stderr, ended.stdout.splitlines()[-1].split()


ASKING = (
    ["plan", "-f", "model.yaml"],
    ["plan", "--server", "-f", "model.yaml"],
    ["explain", "llama"],
    ["status"],
    ["diff", "llama"],
    ["doctor"],
    ["rollout", "history", "llama"],
)


@pytest.mark.parametrize("words", [ASKING[0], ASKING[3]], ids=" ".join)
@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (_refusing, "error[CredentialsRefused]: {} does not accept the credentials"),
        (_of_nobody, "error[CertificateRefused]: the certificate of {} is not"),
        (_closed, "error[NoAnswer]: {} does not answer: nobody listens there;"),
    ],
    ids=["401", "TLS", "closed port"],
)
def test_who_does_not_get_in_is_told_before_the_planner_is_loaded(
    words: list[str],
    cluster: Callable[[Path], Iterator[str]],
    said: str,
    tmp_path: Path,
) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))
    with cluster(tmp_path) as url:  # type: ignore[attr-defined]  # a context manager
        err, (code, *loaded) = _run(tmp_path, _kubeconfig(tmp_path, url), *words)

    assert err.startswith(said.format(url)), err
    assert err.count("\n") == 1
    assert code == "3"
    assert "shardwright.planning" not in loaded
    assert "shardwright.api.resource" not in loaded


def test_who_may_not_list_nodes_is_told_before_the_planner_is_loaded(
    tmp_path: Path,
) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))
    with _forbidding(tmp_path) as url:
        err, (code, *loaded) = _run(tmp_path, _kubeconfig(tmp_path, url), *ASKING[0])

    assert err == (
        f"error[NotAllowedInCluster]: {FORBIDDEN}; ask for the right to list nodes and pods, or "
        "let the operator plan: 'plan --server -f FILE' needs no right to see nodes\n"
    )
    assert code == "3"
    assert "shardwright.planning" not in loaded


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_who_has_no_kubeconfig_is_told_before_anything_is_loaded(
    words: list[str], tmp_path: Path
) -> None:
    err, (code, *loaded) = _run(tmp_path, str(tmp_path / "none"), *words)

    assert err.startswith(
        f"error[NoKubeconfig]: no access to a cluster: there is no kubeconfig: {tmp_path}/none; "
    )
    assert err.count("\n") == 1
    assert (code, loaded) == ("3", [])


def test_what_is_typed_wrong_is_said_before_a_cluster_is_asked(tmp_path: Path) -> None:
    for words in (
        ["plan", "-o", "json"],
        ["status", "llama", "-A"],
        ["diff"],
        ["import"],
    ):
        err, (code, *loaded) = _run(tmp_path, str(tmp_path / "none"), *words)
        assert err.startswith(("error[NotTogether]", "error[NoShardedModel]")), err
        assert (code, loaded) == ("2", [])
