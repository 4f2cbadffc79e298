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
from pathlib import Path
from typing import Any

KEY = "VLLM_API_KEY"
_CLASS = "_Router"
_WORKERS = b"vllm_router_active_workers "
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_API_SERVER = "kubernetes.default.svc"
_ANSWER_SECONDS = 2
_LOOK_SECONDS = 1
"""How long the process that checks keys may outlive the router."""


def main() -> None:
    """Start the router with the arguments of the command line; it returns when the router ends."""
    if sys.argv[1:2] == ["ready"]:
        port, selector = sys.argv[2:]
        sys.exit(0 if has_workers(int(port)) or nobody_serves(selector) else 1)
    if sys.argv[1:2] == ["paired"]:
        sys.exit(0 if has_both(int(sys.argv[2])) else 1)
    urls = [] if (key := _key()) is None else [_checked_at(Guard(key))]
    router = importlib.import_module("vllm_router.router")
    launch = importlib.import_module("vllm_router.launch_router")
    made = getattr(router, _CLASS)
    setattr(router, _CLASS, lambda **options: made(**options, api_key_validation_urls=urls))
    launch.launch_router(launch.parse_router_args(sys.argv[1:]))


def _key() -> str | None:
    key = os.environ.get(KEY)
    if key == "":
        sys.exit(f"the key in {KEY} is empty: the router would let everybody through")
    if key and key != key.strip():
        sys.exit(f"the key in {KEY} begins or ends in white space: no request can bring it")
    return key


class Guard(http.server.ThreadingHTTPServer):
    """Says of a key whether it is this one, to nobody outside its pod."""

    request_queue_size = 1024  # as many may ask at the same moment

    def __init__(self, key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Keys)
        self.wanted = key.encode()


class _Keys(http.server.BaseHTTPRequestHandler):
    server: Guard

    def do_GET(self) -> None:
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(shown.encode("latin-1"), self.server.wanted)
        self.send_response(200 if right and scheme.lower() == "bearer" else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _checked_at(server: Guard) -> str:
    # No thread: the router, which is no Python, keeps the interpreter's lock until it ends.
    router = os.getpid()
    if os.fork() == 0:
        server.timeout = _LOOK_SECONDS
        while os.getppid() == router:
            server.handle_request()
        sys.exit()
    # Else requests would wait for a process that has ended.
    server.server_close()
    return f"http://127.0.0.1:{server.server_address[1]}/"


def has_workers(port: int) -> bool:
    """Return whether the router that tells its metrics at a port knows somebody who serves."""
    told = _told(_here(port), "/metrics") or b""
    said = [line for line in told.splitlines() if line.startswith(_WORKERS)]
    return any(float(line.split()[1]) > 0 for line in said)


def nobody_serves(
    selector: str, account: str = _ACCOUNT, asked: http.client.HTTPConnection | None = None
) -> bool:
    """Return whether the pods of a selector can be listed, and none of them is ready."""
    try:
        of, token = ((Path(account) / name).read_text() for name in ("namespace", "token"))
        trusted = ssl.create_default_context(cafile=f"{account}/ca.crt")
    except OSError:
        return False
    server = asked or http.client.HTTPSConnection(
        _API_SERVER, timeout=_ANSWER_SECONDS, context=trusted
    )
    query = urllib.parse.urlencode({"labelSelector": selector})
    told = _told(server, f"/api/v1/namespaces/{of}/pods?{query}", token)
    return told is not None and not any(_serves(pod) for pod in json.loads(told)["items"])


def _serves(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    # The router forgets a pod as soon as it is to go.
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def has_both(port: int) -> bool:
    """Return whether the router of a pair at a port has somebody to compute and to answer."""
    return _told(_here(port), "/readiness", os.environ.get(KEY, "")) is not None


def _here(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)


def _told(asked: http.client.HTTPConnection, path: str, token: str = "") -> bytes | None:
    """Return what is answered to somebody with a token, or None."""
    try:
        asked.request("GET", path, headers={"Authorization": b"Bearer " + token.encode()})
        answer = asked.getresponse()
        told = answer.read()
    except (OSError, ValueError, http.client.HTTPException):
        # Of a token that no header takes a ValueError quotes all, and what a probe says is public.
        return None
    finally:
        asked.close()
    return told if answer.status == http.HTTPStatus.OK else None


if __name__ == "__main__":
    main()
