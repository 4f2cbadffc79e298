"""Starts vllm-router in the router's image, with what its command line leaves out.

With ``VLLM_API_KEY`` every address of the router asks for that key. Its own command line cannot say
that, and would let everybody through: it wants a URL that takes a key or refuses it, which this
program answers itself. So keys are checked also while no engine runs.

``ready PORT SELECTOR`` ends with 0 if the router, whose metrics are at that port, knows a group, or
if it may list the pods of the selector and none of them serves: with nobody to bring requests to it
holds them. ``paired PORT`` ends with 0 if the router of a pair knows somebody of both halves.
"""

import hmac
import http
import http.client
import http.server
import importlib
import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_CLASS = "_Router"
_WORKERS = b"vllm_router_active_workers "
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def main() -> None:
    """Start the router with the arguments of the command line; it returns when the router ends."""
    if sys.argv[1:2] == ["ready"]:
        port, selector = sys.argv[2:]
        sys.exit(0 if has_workers(int(port)) or nobody_serves(selector) else 1)
    if sys.argv[1:2] == ["paired"]:
        sys.exit(0 if has_both(int(sys.argv[2])) else 1)
    key = os.environ.get("VLLM_API_KEY")
    if key == "":
        sys.exit("the key in VLLM_API_KEY is empty: the router would let everybody through")
    urls = [_checked_at(guard(key))] if key else []
    router = importlib.import_module("vllm_router.router")
    launch = importlib.import_module("vllm_router.launch_router")
    made = getattr(router, _CLASS)
    setattr(router, _CLASS, lambda **options: made(**options, api_key_validation_urls=urls))
    launch.launch_router(launch.parse_router_args(sys.argv[1:]))


def guard(key: str) -> http.server.ThreadingHTTPServer:
    """Return the server that says of a key whether it is this one."""

    class Keys(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
            right = hmac.compare_digest(shown.encode("latin-1"), key.encode())
            self.send_response(200 if right and scheme.lower() == "bearer" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)


def _checked_at(server: http.server.ThreadingHTTPServer) -> str:
    # No thread: the router, which is no Python, keeps the interpreter's lock until it ends.
    if os.fork() == 0:
        server.serve_forever()
    return f"http://127.0.0.1:{server.server_address[1]}/"


def has_workers(port: int) -> bool:
    """Return whether the router that tells its metrics at a port knows somebody who serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as told:
            said = [line for line in told if line.startswith(_WORKERS)]
    except OSError:
        return False
    return any(float(line.split()[1]) > 0 for line in said)


def nobody_serves(
    selector: str, server: str = "https://kubernetes.default.svc", account: str = _ACCOUNT
) -> bool:
    """Return whether the pods of a selector can be listed, and none of them is ready."""
    try:
        of, token = ((Path(account) / name).read_text() for name in ("namespace", "token"))
        query = urllib.parse.urlencode({"labelSelector": selector})
        url, shown = f"{server}/api/v1/namespaces/{of}/pods?{query}", f"Bearer {token}"
        asked = urllib.request.Request(url, headers={"Authorization": shown})  # noqa: S310 - https
        trusted = ssl.create_default_context(cafile=f"{account}/ca.crt")
        with urllib.request.urlopen(asked, timeout=2, context=trusted) as told:  # noqa: S310
            pods = json.load(told)["items"]
    except (OSError, ValueError):
        return False
    return not any(_serves(pod) for pod in pods)


def _serves(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    # The router forgets a pod as soon as it is to go.
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def has_both(port: int) -> bool:
    """Return whether the router of a pair at a port has somebody to compute and to answer."""
    key = os.environ.get("OPENAI_API_KEY", "")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readiness", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
