"""Whoever is not let into a cluster is told in one line with the way out, and soon: before the planner
is loaded, and without a kubeconfig before the library that talks to a cluster is.
"""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography.x509 import IPAddress

from shardwright.api.group_version import API_VERSION
from shardwright.cli import main as entry
from shardwright.reconcile.record_object import record_key
from tests.support.builders_cli import Files, a_manifest
from tests.support.builders_live import a_live_model
from tests.support.builders_snapshot import ONE_NODE, OWNER, Operator
from tests.support.certificates import self_signed
from tests.support.small_cluster import SmallCluster

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


def _answering(
    code: int, reason: str, message: str, objects: Mapping[str, object] = {}
) -> type[BaseHTTPRequestHandler]:
    """Return a server that shows objects by their paths, and answers so to all else."""
    otherwise = {"kind": "Status", "reason": reason, "message": message}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            body = json.dumps(objects.get(path, otherwise)).encode()
            self.send_response_only(200 if path in objects else code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

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
def _showing(folder: Path, objects: Mapping[str, object]) -> Iterator[str]:
    handler = _answering(403, "Forbidden", "no right", objects)
    with _serving(folder, handler) as url:
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
        env={**os.environ, "PYTHONPATH": str(SOURCES), "KUBECONFIG": kubeconfig},
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
    words: list[str], cluster: Callable[[Path], Iterator[str]], said: str, tmp_path: Path
) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))
    with cluster(tmp_path) as url:  # type: ignore[attr-defined]  # a context manager
        err, (code, *loaded) = _run(tmp_path, _kubeconfig(tmp_path, url), *words)

    assert err.startswith(said.format(url)), err
    assert err.count("\n") == 1
    assert code == "3"
    assert "shardwright.planning" not in loaded
    assert "shardwright.api.resource" not in loaded


def test_who_may_not_list_nodes_is_told_before_the_planner_is_loaded(tmp_path: Path) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))
    with _forbidding(tmp_path) as url:
        err, (code, *loaded) = _run(tmp_path, _kubeconfig(tmp_path, url), *ASKING[0])

    assert err == (
        f"error[NotAllowedInCluster]: {FORBIDDEN}; ask for the right to list nodes and pods, or "
        "let the operator plan: 'plan --server -f FILE' needs no right to see nodes\n"
    )
    assert code == "3"
    assert "shardwright.planning" not in loaded


def _planned_model() -> dict[str, object]:
    """Return a ShardedModel whose plan stands, and its plan of record, by their paths."""
    cluster = SmallCluster()
    cluster.add_nodes(1)
    operator = Operator(cluster, ONE_NODE)
    operator.run(60)
    record = operator.cluster.objects[record_key(OWNER)]
    group = f"/apis/{API_VERSION}/namespaces/{OWNER.namespace}/shardedmodels"
    core = f"/api/v1/namespaces/{OWNER.namespace}/configmaps"
    return {
        f"{group}/{OWNER.name}": a_live_model(operator).content,
        f"{core}/{record['metadata']['name']}": record,
    }


@pytest.mark.parametrize("command", ["plan", "explain", "render --scripts", "report"])
def test_a_plan_that_stands_is_shown_to_who_may_not_list_nodes_nor_what_is_served(
    command: str, tmp_path: Path
) -> None:
    with _showing(tmp_path, _planned_model()) as url:
        words = (*command.split(), OWNER.name, "-n", OWNER.namespace)
        err, (code, *_) = _run(tmp_path, _kubeconfig(tmp_path, url), *words)

    assert (err, code) == ("", "0")


def test_who_may_not_see_what_is_served_sees_models_all_the_same(tmp_path: Path) -> None:
    models = f"/apis/{API_VERSION}/namespaces/{OWNER.namespace}/shardedmodels"
    served = {models: {"kind": "ShardedModelList", "metadata": {}, "items": []}}
    with _showing(tmp_path, served) as url:
        words = ("status", "-n", OWNER.namespace)
        err, (code, *_) = _run(tmp_path, _kubeconfig(tmp_path, url), *words)

    assert "error" not in err
    assert code == "0"


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_who_has_no_kubeconfig_is_told_before_anything_is_loaded(
    words: list[str], tmp_path: Path
) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))
    err, (code, *loaded) = _run(tmp_path, str(tmp_path / "none"), *words)

    assert err.startswith(
        f"error[NoKubeconfig]: no access to a cluster: there is no kubeconfig: {tmp_path}/none; "
    )
    assert err.count("\n") == 1
    assert (code, loaded) == ("3", [])


def test_a_context_that_is_not_there_is_said_with_those_that_are(tmp_path: Path) -> None:
    kubeconfig = _kubeconfig(tmp_path, "http://127.0.0.1:1")
    err, (code, *_) = _run(tmp_path, kubeconfig, "status", "--context", "foo")

    assert err == (
        f"error[NoKubeconfig]: no access to a cluster: there is no context foo in {kubeconfig}; "
        "there is: c\n"
    )
    assert code == "3"


def test_what_is_typed_wrong_is_said_before_a_cluster_is_asked(tmp_path: Path) -> None:
    for words in (["plan", "-o", "json"], ["status", "llama", "-A"], ["diff"], ["import"]):
        err, (code, *loaded) = _run(tmp_path, str(tmp_path / "none"), *words)
        assert err.startswith(("error[NotTogether]", "error[NoShardedModel]")), err
        assert (code, loaded) == ("2", [])


NO_FILE = (
    "error[FileUnreadable]: {}: No such file or directory; give a file that exists and that you "
    "may read\n"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan -f missing.yaml", NO_FILE.format("missing.yaml")),
        ("plan --server -f missing.yaml", NO_FILE.format("missing.yaml")),
        ("plan llama --settings missing.yaml", NO_FILE.format("missing.yaml")),
        ("plan us/ours --config missing", NO_FILE.format("missing")),
        ("diff -f model.yaml -f a -f b", NO_FILE.format("a") + NO_FILE.format("b")),
        (
            "import pod/x lws/y workspace",
            "".join(
                f"error[NotAllowed]: KIND/NAME: {word!r} is not KIND/NAME; kinds are deployment, "
                "deploy, leaderworkerset, lws, llminferenceservice, llmisvc, inferenceservice, isvc, "
                "workspace, inferenceset, multiroleinference, dynamographdeployment, dgd, "
                "stormservice, rayclusterfleet\n"
                for word in ("pod/x", "workspace")
            ),
        ),
    ],
)
def test_files_and_names_that_cannot_be_are_said_before_a_cluster_is_asked(
    words: str, said: str, tmp_path: Path
) -> None:
    Files(tmp_path).manifests(a_manifest("llama"))

    assert _run(tmp_path, str(tmp_path / "none"), *words.split()) == (said, ["2"])


def test_what_is_no_number_is_said_before_a_cluster_is_asked(tmp_path: Path) -> None:
    words = ("plan", "us/ours", "--input-tokens", "abc", "--ttft", "2", "--rps", "nan")
    err, (code, *loaded) = _run(tmp_path, str(tmp_path / "none"), *words, "-n", "x")

    assert err.splitlines() == [
        'error[WrongType]: --ttft: "2" must be a time; write for example 2s or 500ms',
        'error[WrongType]: --input-tokens: "abc" must be an integer; write for example 2048',
        'error[WrongType]: --rps: "nan" must be a number; write for example 0.5',
    ]
    assert code == "2"
    assert "kubernetes" not in loaded


def test_what_a_field_does_not_take_is_said_after_a_cluster_is_asked(tmp_path: Path) -> None:
    err, (code, *_) = _run(tmp_path, str(tmp_path / "none"), "plan", "us/ours", "--rps", "0")

    assert err.startswith("error[NoKubeconfig]")
    assert code == "3"
