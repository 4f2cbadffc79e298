"""Requests to the API server: raw JSON in and out, with the retries that are safe for each verb."""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, Final, Self

from shardwright.cluster.access import Access
from shardwright.cluster.calls import (
    DEADLINE_EXCEEDED,
    DRY_RUN,
    JSON,
    METADATA_ONLY,
    TOO_LARGE,
    ApiError,
    Call,
    Gate,
    NotLeadingError,
    RequestLimits,
    Urgency,
)
from shardwright.cluster.resources import Resource
from shardwright.cluster.transport import NOT_COUNTED, Meters, Transport

__all__ = [
    "APPLY_PATCH",
    "FIELD_MANAGER",
    "JSON_PATCH",
    "MERGE_PATCH",
    "ApiError",
    "Call",
    "Client",
    "Meters",
    "NotLeadingError",
    "RequestLimits",
    "Urgency",
]

FIELD_MANAGER: Final = "shardwright"
CHUNK: Final = 500  # objects per page of a LIST
THREADS: Final = 32  # requests at once; as many connections are kept
RETRY_DELAYS_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
NOT_FOUND: Final = "NotFound"

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


Projection = Callable[[dict[str, Any]], Any]
"""Returns what is to be kept of an object."""


class Client:
    """The API server as seen by one user; blocking requests run on ``threads`` threads.

    Requests pass a gate (``limits``) by urgency. ``may_write`` is asked right before each write,
    and again on the sending thread. A lost reply is handled by repeating the request: reads,
    applies, patches and deletes are idempotent, and a repeated create answers 409.
    """

    def __init__(
        self,
        access: Access,
        threads: int = THREADS,
        meters: Meters = NOT_COUNTED,
        may_write: Callable[[], bool] = lambda: True,
        *,
        limits: RequestLimits | None = None,
    ) -> None:
        self._may_write = may_write
        self._patient = True
        self._meters = meters
        self._transport = Transport(access, meters.call, may_write)
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="api")
        self._gate = Gate(limits or RequestLimits(), threads)
        self._urgency: Urgency | None = None
        self._deadline = inf

    def at(self, urgency: Urgency) -> Self:
        """Return this client for requests of this urgency, over the same connections and limits."""
        view = copy.copy(self)
        # A shallow copy shares connections, threads and gate, which is the point of it.
        vars(view).update(_urgency=urgency)
        return view

    def impatient(self) -> Self:
        """Return this client for an interactive user: an unanswered request is not sent again."""
        view = copy.copy(self)
        vars(view).update(_patient=False)
        return view

    def until(self, deadline: float) -> Self:
        """Return this client, for requests that end by this moment of the monotonic clock.

        None is sent, repeated or waited for after it: a request not done by then is an ``ApiError``
        with code 0 and reason ``DeadlineExceeded``, though a write may have been carried out. An
        earlier deadline stands.
        """
        view = copy.copy(self)
        vars(view).update(_deadline=min(deadline, self._deadline))
        return view

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> dict[str, Any] | None:
        """Return an object or only its metadata, None if the API server itself has none."""
        accept = METADATA_ONLY if metadata_only else JSON
        call = Call(
            verb="get",
            resource=resource,
            path=resource.path(namespace, name),
            method="GET",
            accept=accept,
        )
        try:
            return await self.send(call)
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND and error.reason == NOT_FOUND:
                return None
            raise

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        project: Projection | None = None,
        **selectors: str,
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield a LIST by pages (``labelSelector``, ``fieldSelector``); all else is an error.

        Pages that are too large are asked for again with fewer objects. With ``project`` each item
        is decoded alone, and only the result is kept.
        """
        cursor: str | None = None
        limit = CHUNK
        while cursor != "":
            # In pages: an answer of all nodes at once could exceed the bound on one answer.
            query = (("limit", str(limit)), *selectors.items())
            call = Call(
                verb="list",
                resource=resource,
                path=resource.path(namespace),
                method="GET",
                query=(*query, ("continue", cursor)) if cursor else query,
                project=project,
            )
            try:
                page = await self.send(call)
            except ApiError as error:
                if error.reason != TOO_LARGE or limit == 1:
                    raise
                # The same cursor: a page that did not arrive has taken nothing over.
                limit //= 2
                continue
            if not isinstance(page.get("items"), list):
                raise ApiError(0, "NotAList", f"the answer to LIST {resource.plural} is not a list")
            yield page["items"]
            cursor = page["metadata"].get("continue") or ""

    async def list(
        self, resource: Resource, namespace: str | None = None, **selectors: str
    ) -> list[dict[str, Any]]:
        """Return a whole LIST; not for a cluster's nodes and pods: project them by page."""
        return [
            item
            async for page in self.pages(resource, namespace, project=None, **selectors)
            for item in page
        ]

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Create an object, or only try to; 409 if its name is taken, by us or others."""
        # Named, so that an apply later finds these fields as ours (_own_by_apply in writer).
        query = (("fieldManager", FIELD_MANAGER), *(DRY_RUN if dry_run else ()))
        path = resource.path(namespace)
        return await self.send(
            Call(
                verb="create",
                resource=resource,
                path=path,
                method="POST",
                query=query,
                body=dict(body),
            )
        )

    async def patch(
        self, resource: Resource, path: str, body: Any, content_type: str, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Patch the object at ``path``, or only try to; an apply takes over others' fields."""
        # Without force a field that somebody else has edited is a conflict, and could never be
        # repaired.
        forced = (("force", "true"),) if content_type == APPLY_PATCH else ()
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

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Merge a patch into a status and return only metadata: the content may be large."""
        path, query = (resource.path(namespace, name, "status"), (("fieldManager", FIELD_MANAGER),))
        call = Call(
            verb="patch",
            resource=resource,
            path=path,
            method="PATCH",
            query=query,
            body=dict(body),
            content_type=MERGE_PATCH,
            accept=METADATA_ONLY,
        )
        return await self.send(call)

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace an object whose body has the resource version read; 409 if it changed."""
        path = resource.path(namespace, name)
        return await self.send(
            Call(verb="update", resource=resource, path=path, method="PUT", body=dict(body))
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete exactly this uid's object, dependents in the background; gone is fine."""
        options: dict[str, Any] = {
            # An object of the same name that was made since is not the one that was decided on.
            "preconditions": {"uid": uid},
            # Foreground would keep the object until all that depends on it is gone.
            "propagationPolicy": "Background",
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = resource.path(namespace, name)
        try:
            await self.send(
                Call(verb="delete", resource=resource, path=path, method="DELETE", body=options)
            )
        except ApiError as error:
            if error.code not in {404, 409}:  # gone, or another object of the name
                raise

    async def send(self, call: Call) -> dict[str, Any]:
        """Send a request, again after a pause if it may then succeed.

        Raises:
            ApiError: refused, out of time, or still failing after the last retry.
        """
        failed: ApiError | None = None
        for delay in RETRY_DELAYS_SECONDS:
            try:
                return await self._try(call, failed)
            except ApiError as error:
                if (
                    not error.passes
                    or error.reason == DEADLINE_EXCEEDED
                    or (error.code == 0 and not self._patient)
                ):
                    raise
                failed = error
            # Spread, so that reconciles that failed together do not come back together.
            pause = failed.retry_after_seconds or delay * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
            # At once: a reconcile that waits out its time for nothing holds up its model's next
            # one.
            if monotonic() + pause >= self._deadline:
                raise _no_time(failed) from failed
            await asyncio.sleep(pause)
        return await self._try(call, failed)

    async def _try(self, call: Call, failed: ApiError | None) -> dict[str, Any]:
        # After a timeout the earlier failure is raised: it names the cause.
        try:
            return await self._send_once(call)
        except ApiError as error:
            if failed and error.reason == DEADLINE_EXCEEDED:
                raise _no_time(failed) from error
            raise

    async def _send_once(self, call: Call) -> dict[str, Any]:
        urgency = self._urgency if self._urgency is not None else call.urgency
        # Past the gate: a flood of our own requests must not cost the leadership.
        if urgency is Urgency.LEASE:
            return await self._exchange(call)
        await self._pass_gate(call, urgency)
        # Asked after the gate, where a request may have waited for longer than a Lease lasts.
        if call.writes and not self._may_write():
            self._gate.leave(call.namespace)
            raise NotLeadingError
        exchange = self._exchange(call)
        exchange.add_done_callback(lambda _: self._gate.leave(call.namespace))
        # Whoever gives up waiting does not free the thread.
        return await asyncio.shield(exchange)

    async def _pass_gate(self, call: Call, urgency: Urgency) -> None:
        began = monotonic()
        try:
            await self._gate.enter(urgency, call.namespace, self._deadline)
        # Said as not sent: a write of which this is said has surely not been carried out.
        except TimeoutError as error:
            raise ApiError(
                0, DEADLINE_EXCEEDED, f"{call.method} {call.path}: not sent, its time was over"
            ) from error
        finally:
            self._meters.wait(urgency, monotonic() - began)

    def _exchange(self, call: Call) -> asyncio.Future[dict[str, Any]]:
        return asyncio.get_running_loop().run_in_executor(
            self._threads, self._transport.exchange, call, self._deadline
        )

    def ask(self, call: Call, seconds: float) -> dict[str, Any]:
        """Send a request once and return its answer in time; blocking, past the gate.

        Raises:
            ApiError: refused, unanswered, or out of time.
        """
        return self._transport.exchange(call, monotonic() + seconds)

    def open(self, call: Call, read_timeout_seconds: float) -> Any:
        """Send a request; return the response before its body is read. Blocks, past the gate."""
        return self._transport.stream(call, read_timeout_seconds)

    def close(self) -> None:
        """Take no more requests; those under way end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._transport.close()


def _no_time(failed: ApiError) -> ApiError:
    return ApiError(0, DEADLINE_EXCEEDED, f"no time to try again: {failed}")
