"""Builds vLLM's own server from a pod's arguments, and asks each of its routes without and with the key.

Runs in the engine's environment:  python guarded.py ARGUMENT...

No model is loaded: what a request does behind the guard fails, and counts as let through. Routes that
only development mode opens are there, too.
"""

import asyncio
import json
import os
import re
import sys
from typing import Any

from tests.engine.checker import PREFIX, parser_of_serve, pretend_gpus

TASKS = ("generate", "render", "transcription", "realtime")
HEADERS = {
    "nothing": [],
    "key": [(b"authorization", b"Bearer " + os.environ["VLLM_API_KEY"].encode())],
    "another": [(b"authorization", b"Bearer another")],
}


def main() -> None:
    pretend_gpus()
    # A package of 0.33 that the environment, which is of 0.32, lacks; no route is taken so far.
    sys.modules.setdefault("orjson", json)
    from vllm.entrypoints.launchers.app import build_app

    parser, _ = parser_of_serve()
    app = build_app(parser.parse_args(sys.argv[1:]), TASKS)
    asked = sorted({one for route in app.routes for one in requests_of(route)})
    answers = {
        who: {f"{method} {path}": answer(app, method, path, headers) for method, path in asked}
        for who, headers in HEADERS.items()
    }
    print(f"{PREFIX}{json.dumps(answers)}")


def requests_of(route: Any) -> list[tuple[str, str]]:
    """Return method and path of the requests that a route takes."""
    path = re.sub(r"\{[^}]*\}", "x", route.path) or "/"
    methods = getattr(route, "methods", None)
    if methods is None:
        socket = "websocket" in type(route).__name__.lower()
        return [("WEBSOCKET", path)] if socket else [("GET", path), ("GET", f"{path}/x")]
    return [(method, path) for method in sorted({*methods, "OPTIONS"})]


def answer(app: Any, method: str, path: str, headers: list[tuple[bytes, bytes]]) -> int:
    """Return the status of an answer; 0 where what is behind the guard has failed or waits."""
    said: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"} if method == "WEBSOCKET" else BODY

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            said.append(message["status"])
        elif message["type"] == "websocket.close":
            said.append(message["code"])

    try:
        asyncio.run(asyncio.wait_for(app(scope_of(method, path, headers), receive, send), 5))
    except BaseException:  # noqa: BLE001 - no engine is behind the routes
        return said[0] if said else 0
    return said[0] if said else 0


BODY: dict[str, Any] = {"type": "http.request", "body": b"{}", "more_body": False}


def scope_of(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    kind = "websocket" if method == "WEBSOCKET" else "http"
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if kind == "websocket" else "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }


main()
