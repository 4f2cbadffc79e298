"""A small Kubernetes API client on the standard library.

The harness must not depend on the library that the code under test uses: a fault there would hide
itself.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit

Manifest: TypeAlias = dict[str, Any]
PatchKind: TypeAlias = Literal["merge", "strategic", "json"]

_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
_STALE_CONNECTION = (
    http.client.RemoteDisconnected,
    http.client.CannotSendRequest,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)


class ApiError(Exception):
    """An answer of the API server that is not a success, or no answer at all (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """Requests to one API server; safe to use from several threads."""

    def __init__(self, url: str, ca_file: Path, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._token = token
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the idle connections."""
        while connection := self._take():
            connection.close()

    def get(self, path: str, **query: str) -> Any:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Manifest) -> Any:
        return self.request("POST", path, body)

    def replace(self, path: str, body: Manifest) -> Any:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: PatchKind = "merge") -> Any:
        return self.request("PATCH", path, body, content_type=_PATCH_TYPES[kind])

    def delete(
        self, path: str, *, grace_period_seconds: int | None = None, missing_ok: bool = False
    ) -> None:
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if not (missing_ok and error.status == http.client.NOT_FOUND):
                raise

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        """Send one request and return the decoded answer (JSON, or text where the server sends
        text).
        """
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/json",
            "Content-Type": content_type,
        }
        data = None if body is None else json.dumps(body).encode()
        try:
            response, text = self._exchange(method, target, data, headers)
        except OSError as error:
            raise ApiError(0, "NoAnswer", f"{method} {path}: {error}") from error
        answer = (
            json.loads(text)
            if response.getheader("Content-Type", "").startswith("application/json")
            else text.decode()
        )
        if response.status >= http.client.BAD_REQUEST:
            status: Manifest = answer if isinstance(answer, dict) else {"message": answer}
            raise ApiError(
                response.status, status.get("reason") or response.reason, status.get("message", "")
            )
        return answer

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """One request on an idle connection; on a new one where the server had closed the idle ones
        in the meantime.
        """
        while True:
            reused = self._take()
            connection = reused or http.client.HTTPSConnection(
                self._host, self._port, context=self._context, timeout=30
            )
            try:
                connection.request(method, target, data, headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if reused and isinstance(error, _STALE_CONNECTION):
                    continue
                raise (
                    error if isinstance(error, OSError) else ConnectionError(str(error))
                ) from error
            with self._lock:
                self._idle.append(connection)
            return response, text

    def _take(self) -> http.client.HTTPSConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None
