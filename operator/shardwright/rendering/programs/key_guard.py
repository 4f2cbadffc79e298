"""Asks every request for the API key, in the engine's own process: ASGI middleware that vLLM loads.

vLLM's own check asks for the key below a few prefixes, ``/v1`` among them, and serves everybody
``/invocations``, ``/tokenize`` and what else it has. This one stands before all of its routes; only
health and metrics, which probes and monitoring read, need no key.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

KEY_VARIABLE = "VLLM_API_KEY"
OPEN_PATHS = ("/health", "/metrics", "/metrics/")
OPEN_METHODS = ("GET", "HEAD")
UNAUTHORIZED = b'{"error":"Unauthorized"}'
POLICY_VIOLATION = 1008
"""Code of a websocket that is closed for want of a right; RFC 6455, 7.4.1."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class KeyGuard:
    """Lets through who brings the key, health and metrics; the engine does not start without a key.

    Raises:
        KeyError: There is no key, which would be one that everybody brings.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        if not (key := os.environ[KEY_VARIABLE]):
            raise KeyError(KEY_VARIABLE)
        self.app, self.wanted = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        kind = scope["type"]
        if kind == "lifespan" or self._passes(scope):
            await self.app(scope, receive, send)
        elif kind == "http":
            await _refuse(send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    def _passes(self, scope: Scope) -> bool:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        return _is_open(scope, headers) or self._brings_key(headers.get(b"authorization", []))

    def _brings_key(self, said: list[bytes]) -> bool:
        # Of two headers the engine might read the other one.
        scheme, _, key = said[0].partition(b" ") if len(said) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key, self.wanted)


def _is_open(scope: Scope, headers: MutableMapping[bytes, list[bytes]]) -> bool:
    if scope["type"] != "http":
        return False
    if scope["method"] in OPEN_METHODS:
        return scope["path"] in OPEN_PATHS
    # What a browser asks before it sends a key: CORS middleware answers it, and no route sees it.
    preflight = b"origin" in headers and b"access-control-request-method" in headers
    return scope["method"] == "OPTIONS" and preflight


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(UNAUTHORIZED)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": UNAUTHORIZED})
