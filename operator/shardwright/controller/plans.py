"""Plans as pages for people, never more than the API server would show to that user.

The API server says who has sent a request, and which plans that user may list or get.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

from aiohttp import web

from shardwright.api.conditions import ConditionType
from shardwright.api.record import PlanRecord
from shardwright.cluster.calls import ApiError
from shardwright.cluster.client import Client
from shardwright.cluster.permissions import PLANS_AUDIENCE, User, user_may, who_brings
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.controller.full_objects import ChangedError
from shardwright.controller.http_server import in_slices
from shardwright.controller.metrics_auth import Desk, Memory, mark_of
from shardwright.controller.queue import Key
from shardwright.hardware.inventory import Inventory
from shardwright.pages.page import Listed, plan_page, plans_page
from shardwright.pipeline.documents import explanation_document
from shardwright.pipeline.explaining import of_subject
from shardwright.rendering.bundle import KubernetesObject
from shardwright.reporting.explanation import explain, with_drawings
from shardwright.resolving.subject import Subject

log = logging.getLogger(__name__)

PLANS_PATH: Final = "/plans"
# Percent-encoded letters are in no name: nothing odd goes into a message or a log.
_NAME: Final = "[a-z0-9][-.a-z0-9]*"

ANSWER_SECONDS: Final = 4.0
"""How long an answer may take to be made. Basis: assumed; less than a client has for its exchange.
"""

WAITING_MAX: Final = 8
"""Requests that wait at once; they are answered one after the other. Basis: assumed; a page takes
some 50 ms of CPU.
"""

NAMESPACES_MAX: Final = 100
"""Namespaces that are asked about for one list. Basis: assumed; each is a request to the API server
of some milliseconds.
"""

# Of two users' lists and more: one that took too long goes on from here when it is asked for again.
RIGHTS_REMEMBERED_MAX: Final = 256
USERS_REMEMBERED_MAX: Final = 64

PAGE_MAX_BYTES: Final = 1_500_000  # as of the command report

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked on the operator's loop: all models, and one with its plan of record."""

    models: Callable[[], Coroutine[Any, Any, Sequence[Listed]]]
    plan: Callable[[Key], Coroutine[Any, Any, tuple[Subject, PlanRecord] | None]]


class Plans:
    """Serves ``/plans``, ``/plans/NAMESPACE`` and ``/plans/NAMESPACE/NAME``, one at a time."""

    def __init__(self, client: Client, sources: Sources, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._sources = sources
        self._loop = loop
        # One: a page takes CPU that repairs need, however many people ask.
        self._desk = Desk("plans", WAITING_MAX)
        # Apart: strangers with tokens push out no right.
        self._users: Memory[User] = Memory(USERS_REMEMBERED_MAX)
        self._rights: Memory[bool] = Memory(RIGHTS_REMEMBERED_MAX)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the pages, with and without a slash at the end."""
        one, other = f"/{{namespace:{_NAME}}}", f"/{{name:{_NAME}}}"
        paths = ("", one, one + other)
        return [web.get(f"{PLANS_PATH}{path}{{_:/?}}", self._answer) for path in paths]

    async def _answer(self, request: web.Request) -> web.Response:
        token = token_of(request.headers.get("authorization", ""))
        # Without a question to the API server: strangers must cost nothing.
        if not token:
            raise _unknown()
        until = monotonic() + ANSWER_SECONDS
        page = self._desk.asked(
            request.remote or "", lambda: self._page(token, request.match_info, until)
        )
        if page is None:
            raise web.HTTPTooManyRequests
        try:
            body = (await page).encode()
        except (ApiError, ChangedError, TimeoutError) as error:
            log.warning("a page of plans could not be made: %s", str(error) or "it took too long")
            raise web.HTTPServiceUnavailable from error
        # Refused, not cut: half a page would show half of a plan as all of it.
        if len(body) > PAGE_MAX_BYTES:
            raise web.HTTPInsufficientStorage(
                text=f"the page has {len(body):,} bytes, {PAGE_MAX_BYTES:,} at most are sent\n"
            )
        return in_slices(body, {"Content-Type": "text/html; charset=utf-8"})

    def stop(self) -> None:
        """Take no more requests, and wait for the current page."""
        self._desk.stop()

    def _page(self, token: str, wanted: Mapping[str, str], until: float) -> str:
        who = self._users.get(mark := mark_of(token))
        if who is None:
            # Nobody is remembered as well, as a user without a name.
            who = who_brings(self._client, token, PLANS_AUDIENCE, until) or {}
            self._users.put(mark, who)
        if not who:
            raise _unknown()
        namespace, name = wanted.get("namespace", ""), wanted.get("name", "")
        if not name:
            return self._list(who, namespace, until)
        # Asked before it is looked for: only with the right to get it may one learn whether a model
        # exists.
        if not self._may("get", who, namespace, until):
            raise _forbidden("get", namespace)
        found = self._asked(self._sources.plan((namespace, name)), until)
        if found is None:
            raise web.HTTPNotFound(
                text=f"there is no plan of record of a ShardedModel {name} in {namespace}\n"
            )
        return page_of(*found)

    def _list(self, who: User, only: str, until: float) -> str:
        listed = [
            item
            for item in self._asked(self._sources.models(), until)
            if only in ("", item.namespace)
        ]
        # A namespace without models is asked about all the same: without the right to list it,
        # nobody may learn that it has none.
        namespaces = sorted({item.namespace for item in listed}) or [only]
        everywhere = self._may("list", who, "", until)
        asked = namespaces if everywhere else namespaces[:NAMESPACES_MAX]
        seen = {
            namespace
            for namespace in asked
            if everywhere or self._may("list", who, namespace, until)
        }
        if only and not seen:
            raise _forbidden("list", only)
        shown = sorted(
            (item for item in listed if item.namespace in seen),
            key=lambda item: (item.namespace, item.name),
        )
        return plans_page(shown, unasked=len(namespaces) - len(asked), root=PLANS_PATH)

    def _may(self, verb: str, who: User, namespace: str, until: float) -> bool:
        # By the verb as well: the right to get one plan is not the right to list those of a
        # namespace.
        allowed = self._rights.get(mark := (repr(who), verb, namespace))
        if allowed is not None:
            return allowed
        deed = {
            "group": SHARDED_MODELS.group,
            "resource": SHARDED_MODELS.plural,
            "verb": verb,
            "namespace": namespace,
        }
        allowed = user_may(self._client, who, {"resourceAttributes": deed}, until)
        self._rights.put(mark, allowed)
        return allowed

    def _asked(self, question: Coroutine[Any, Any, Answer], until: float) -> Answer:
        answer = asyncio.run_coroutine_threadsafe(question, self._loop)
        return answer.result(max(0.0, until - monotonic()))


def token_of(header: str) -> str:
    """Return the token of ``Authorization``, empty if there is none.

    A browser sends what was typed into its own box: the password is the token, any user name will
    do.

    >>> token_of("Bearer abc"), token_of("Basic bWU6YWJj"), token_of("Basic ?")
    ('abc', 'abc', '')
    """
    scheme, _, token = (header if header.isascii() else "").partition(" ")
    if scheme.lower() == "basic":
        try:
            token = b64decode(token.strip(), validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return token.strip() if scheme.lower() in {"basic", "bearer"} else ""


def page_of(subject: Subject, record: PlanRecord) -> str:
    """Return a plan of record's page: that of ``explain -o json``, without other candidates."""
    report = record.report()
    # The request of another spec would be shown beside a plan that does not answer it.
    request = subject.request if record.input_hash == subject.input_hash else None
    nobody = Inventory(pools=())
    said = of_subject(subject, explain(report, request=request))
    explanation = with_drawings(said, report, model=subject.model, inventory=nobody, surveyed=())
    return plan_page(explanation_document(subject, report, explanation))


def listed(content: KubernetesObject) -> Listed:
    """Return the list's row for a resource in the caches."""
    metadata = content["metadata"]
    status = content.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready = next(
        (str(item.get("reason")) for item in conditions if item.get("type") == ConditionType.READY),
        "",
    )
    plan = status.get("plan") or {}
    said = f"{plan['gpus']} x {plan.get('product', '')}" if "gpus" in plan else ""
    model = ((content.get("spec") or {}).get("model") or {}).get("id", "")
    return Listed(
        namespace=metadata["namespace"],
        name=metadata["name"],
        model=str(model),
        ready=ready,
        plan=said,
    )


def _unknown() -> web.HTTPUnauthorized:
    challenge = "WWW-Authenticate"
    return web.HTTPUnauthorized(
        text=f"a token for the audience {PLANS_AUDIENCE} is wanted; a browser takes it as the "
        "password, with any user name\n",
        # A header for each, as Chromium asks for no password if one header has two.
        headers=[(challenge, 'Basic realm="shardwright plans"'), (challenge, "Bearer")],
    )


def _forbidden(verb: str, namespace: str) -> web.HTTPForbidden:
    return web.HTTPForbidden(text=f"you may not {verb} ShardedModels in {namespace}\n")
