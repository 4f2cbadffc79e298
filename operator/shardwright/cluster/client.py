"""Requests to the API server: raw JSON in, raw JSON out, with the retries that are safe for each verb."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from shardwright.cluster.access import Access
from shardwright.cluster.resources import Resource
from shardwright.cluster.throttle import TokenBucket

FIELD_MANAGER: Final = "shardwright"
CHUNK: Final = 500  # objects per page of a LIST
CONNECT_TIMEOUT_SECONDS: Final = 10.0
READ_TIMEOUT_SECONDS: Final = 30.0
RETRY_DELAYS_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
LONGEST_RETRY_AFTER_SECONDS: Final = 30.0

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

DRY_RUN: Final = (("dryRun", "All"),)

OnCall = Callable[[str, str, int], None]
"""Told of every finished request: verb, resource, status code (0: no answer)."""


class ApiError(Exception):
    """The API server refused a request or did not answer (``code`` 0)."""

    def __init__(self, code: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        self.code = code
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)

    @property
    def passes(self) -> bool:
        """Return whether the same request may succeed a little later."""
        return self.code in {0, 429} or self.code >= 500  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; ``verb`` is the RBAC verb."""

    verb: str
    resource: Resource
    path: str
    method: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    accept: str = JSON


class Client:
    """The API server as seen by one user; blocking requests run on ``threads`` threads.

    ``writes`` throttles everything that is not a read; ``may_write`` is asked immediately before each. A reply
    that got lost is handled by repeating the request: reads, applies, patches and deletes are idempotent, and a
    repeated create answers 409.
    """

    def __init__(
        self,
        access: Access,
        threads: int = 16,
        on_call: OnCall | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._access = access
        self._api = ApiClient(access.configuration)
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="api")
        self._on_call = on_call or (lambda _verb, _resource, _code: None)
        self._may_write = may_write
        self.writes = TokenBucket(per_second=50, burst=100)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object, or None where it does not exist."""
        call = Call(verb="get", resource=resource, path=resource.path(namespace, name), method="GET")
        try:
            return await self.send(call)
        except ApiError as error:
            if error.code == 404:  # noqa: PLR2004
                return None
            raise

    async def pages(
        self, resource: Resource, namespace: str | None = None, **selectors: str
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield a LIST page by page (``labelSelector``, ``fieldSelector``); anything but a proper list is an error."""
        cursor: str | None = None
        while cursor != "":
            query = [("limit", str(CHUNK)), *selectors.items(), *([("continue", cursor)] if cursor else [])]
            call = Call(verb="list", resource=resource, path=resource.path(namespace), method="GET", query=tuple(query))
            page = await self.send(call)
            if not isinstance(page.get("items"), list):
                raise ApiError(0, "NotAList", f"the answer to LIST {resource.plural} is not a list")
            yield page["items"]
            cursor = page["metadata"].get("continue") or ""

    async def list(self, resource: Resource, namespace: str | None = None, **selectors: str) -> list[dict[str, Any]]:
        """Return a whole LIST; not for nodes and pods of the cluster, whose pages are projected one by one."""
        return [item async for page in self.pages(resource, namespace, **selectors) for item in page]

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object, or only ask what would come of it; 409 where one of the name exists, ours or not."""
        query = (("fieldManager", FIELD_MANAGER), *(DRY_RUN if dry_run else ()))
        path = resource.path(namespace)
        return await self.send(Call(verb="create", resource=resource, path=path, method="POST", query=query, body=dict(body)))

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, force: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        """Patch an object or its subresource at ``path``, or only ask what would come of it."""
        forced = (("force", "true"),) if force else ()
        query = (("fieldManager", FIELD_MANAGER), *forced, *(DRY_RUN if dry_run else ()))
        return await self.send(
            Call(
                verb="patch",
                resource=resource,
                path=path,
                method="PATCH",
                query=query,
                body=body,
                content_type=content_type,
            )
        )

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object whose body carries the resource version it was read at; 409 where it changed since."""
        path = resource.path(namespace, name)
        return await self.send(Call(verb="update", resource=resource, path=path, method="PUT", body=dict(body)))

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None) -> None:
        """Delete exactly the object with this uid, its dependents in the background; gone already is fine."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = resource.path(namespace, name)
        try:
            await self.send(Call(verb="delete", resource=resource, path=path, method="DELETE", body=options))
        except ApiError as error:
            if error.code not in {404, 409}:  # gone, or another object of the name
                raise

    async def send(self, call: Call) -> dict[str, Any]:
        """Send a request, again after a pause where it may pass later.

        Raises:
            ApiError: refused, or still failing after the last retry.
        """
        for delay in RETRY_DELAYS_SECONDS:
            try:
                return await self._send_once(call)
            except ApiError as error:
                if not error.passes:
                    raise
                await asyncio.sleep(error.retry_after_seconds or delay * random.uniform(0.8, 1.2))  # noqa: S311
        return await self._send_once(call)

    async def _send_once(self, call: Call) -> dict[str, Any]:
        if call.method != "GET":
            await self._wait_to_write()
        code = 0
        try:
            code, body = await asyncio.get_running_loop().run_in_executor(self._threads, self._exchange, call)
        finally:
            self._on_call(call.verb, call.resource.plural, code)
        return body if code < 300 else _refuse(code, body)  # noqa: PLR2004

    async def _wait_to_write(self) -> None:
        await self.writes.take()
        if not self._may_write():
            raise ApiError(403, "NotLeading", "another operator leads")

    def _exchange(self, call: Call) -> tuple[int, dict[str, Any]]:
        """Do one HTTP exchange and return code and JSON body; runs on a thread."""
        response = self.open(call, READ_TIMEOUT_SECONDS)
        try:
            text = response.read()
            body = json.loads(text) if text and not _is_unknown_path(response.status, text) else {}
        except (ValueError, OSError, urllib3.exceptions.HTTPError) as error:
            raise ApiError(0, "NotJson", f"{call.method} {call.path}: unreadable answer: {error}") from error
        if not isinstance(body, dict):
            raise ApiError(0, "NotJson", f"{call.method} {call.path}: the answer is no JSON object")
        if response.status == 429:  # noqa: PLR2004
            body["retryAfter"] = response.headers.get("Retry-After")
        return response.status, body

    def open(self, call: Call, read_timeout_seconds: float) -> Any:
        """Send a request and return the response before its body is read; blocking."""
        headers = {"Accept": call.accept, "Content-Type": call.content_type, "User-Agent": FIELD_MANAGER}
        if authorization := self._access.configuration.get_api_key_with_prefix("BearerToken"):
            headers["Authorization"] = authorization
        query = urlencode(call.query) if call.query else ""
        url = self._access.configuration.host + call.path + (f"?{query}" if query else "")
        timeout = (CONNECT_TIMEOUT_SECONDS, read_timeout_seconds)
        try:
            return self._api.rest_client.request(call.method, url, headers=headers, body=call.body, _request_timeout=timeout)
        except (ApiException, OSError, urllib3.exceptions.HTTPError) as error:
            raise ApiError(0, "Unreachable", f"{call.method} {call.path}: {error}") from error

    def close(self) -> None:
        """Stop taking requests; those on their way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._api.close()


def _is_unknown_path(code: int, text: bytes) -> bool:
    """Return whether the API server does not have this kind of object at all: it says so in plain text."""
    return code == 404 and not text.startswith(b"{")  # noqa: PLR2004


def _refuse(code: int, body: Mapping[str, Any]) -> dict[str, Any]:
    seconds = str(body.get("retryAfter") or "")
    retry_after = min(float(seconds), LONGEST_RETRY_AFTER_SECONDS) if seconds.isdigit() else None
    raise ApiError(code, str(body.get("reason", "")), str(body.get("message", f"HTTP {code}")), retry_after)
