"""A hub of one model, in the cluster: what the hub's own client asks for, and a count of the bytes
of weights that it got.
"""

from __future__ import annotations

from typing import Any

from tests.kind import release, serving
from tests.kind.cluster import Cluster
from tests.kind.serving import CLIENT, NAMESPACE

NAME, PORT = release.HUB, 8080
URL = f"http://{NAME}.{NAMESPACE}.svc:{PORT}"

SERVER = """
import hashlib, http.server, json, os, sys
folder, commit, given = sys.argv[1], "0" * 40, {}

def content(path):
    name = path.rsplit("/", 1)[-1]
    if path == "/given":
        return json.dumps(sum(given.values())).encode()
    if path.startswith("/api/models/"):
        files = sorted(os.listdir(folder))
        sizes = {file: os.path.getsize(os.path.join(folder, file)) for file in files}
        tree = [{"type": "file", "path": file, "oid": commit, "size": size} for file, size in sizes.items()]
        siblings = [{"rfilename": file} for file in files]
        return json.dumps(tree if "/tree/" in path else {"id": "tests/tiny", "sha": commit, "siblings": siblings}).encode()
    file = os.path.join(folder, name)
    return open(file, "rb").read() if os.path.isfile(file) else None

class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, whole):
        path = self.path.partition("?")[0]
        found = content(path)
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Length", str(len(found or b"")))
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", '"' + hashlib.sha256(found or b"").hexdigest() + '"')
        self.end_headers()
        if whole and found is not None:
            self.wfile.write(found)
            if path.endswith(".safetensors"):
                given[len(given)] = len(found)

http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Hub).serve_forever()
"""

_GIVEN = f"import urllib.request as r; print(r.urlopen('{URL}/given', timeout=10).read().decode())"


def objects(image: str) -> list[dict[str, Any]]:
    """Its pod, which reads the models' claim, and its Service."""
    pod = serving.plain_pod(NAME, image)
    (container,) = pod["spec"]["containers"]
    container["command"] = ["python3", "-c", SERVER, "/models/tiny", str(PORT)]
    container["volumeMounts"] = [{"name": "models", "mountPath": "/models", "readOnly": True}]
    pod["spec"]["volumes"] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    ]
    named = {"name": NAME, "namespace": NAMESPACE}
    spec = {"selector": {"app": NAME}, "ports": [{"port": PORT}]}
    return [pod, {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": spec}]


def start(cluster: Cluster) -> None:
    """Start it and return when it runs."""
    cluster.apply(*objects(release.image(cluster)))
    cluster.kubectl(
        "-n", NAMESPACE, "wait", f"pod/{NAME}", "--for=condition=Ready", "--timeout=120s"
    )


def given_bytes(cluster: Cluster) -> int:
    """Bytes of weights that anybody got from it so far."""
    return int(cluster.kubectl("-n", NAMESPACE, "exec", CLIENT, "--", "python3", "-c", _GIVEN))


def stop(cluster: Cluster) -> None:
    """End it."""
    cluster.kubectl(
        "-n", NAMESPACE, "delete", f"pod/{NAME}", f"service/{NAME}", "--ignore-not-found"
    )
