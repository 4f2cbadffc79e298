"""Plans as pages, for people. The API server says who has sent a request, and which plans that user
may list or get.

It never shows more than the API server would, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, TypeVar

from shardwright.api.conditions import ConditionType
from shardwright.api.record import PlanRecord
from shardwright.cluster.calls import ApiError
from shardwright.cluster.client import Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.cluster.reviews import PLANS_AUDIENCE, Deed, User, may, who_brings
from shardwright.controller.http_server import HttpReply, HttpRequest
from shardwright.controller.queue import Key
from shardwright.controller.whole import ChangedError
from shardwright.documents import explanation_document
from shardwright.hardware.inventory import Inventory
from shardwright.pages.listing import Listed, plans_page
from shardwright.pages.page import plan_page
from shardwright.rendering.bundle import KubernetesObject
from shardwright.reporting.explanation import explain, with_drawings
from shardwright.resolving.subject import Subject

log = logging.getLogger(__name__)

PLANS_PATH: Final = "/plans"

ANSWER_SECONDS: Final = 4.0
"""How long an answer may take to be made. Basis: assumed; less than a client has for its exchange.
"""

WAITING_MAX: Final = 8
"""Requests that wait at once; they are answered one after the other. Basis: assumed; a page takes
some 50 ms of CPU.
"""

WAITING_MAX_OF_ADDRESS: Final = 2  # a page that was given up, and the next

REMEMBERED_SECONDS: Final = 10.0  # as for scrapes
REMEMBERED_MAX: Final = 256

NAMESPACES_MAX: Final = 100
"""Namespaces that are asked about for one list. Basis: assumed; each is a request to the API server
of some milliseconds.
"""

PAGE_MAX_BYTES: Final = 1_500_000  # as of the command report

Answer = TypeVar("Answer")

_HTML: Final = "text/html; charset=utf-8"

_UNKNOWN: Final = HttpReply(
    HTTPStatus.UNAUTHORIZED,
    f"a token for the audience {PLANS_AUDIENCE} is wanted; a browser takes it as the "
    "password, with any user name\n".encode(),
    challenges=('Basic realm="shardwright plans"', "Bearer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The operator's knowledge, each asked for on its own loop: the models there are, and one of
    them with its plan of record.
    """

    models: Callable[[], Coroutine[Any, Any, Sequence[Listed]]]
    plan: Callable[[Key], Coroutine[Any, Any, tuple[Subject, PlanRecord] | None]]


class _Refusal(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, status: HTTPStatus, why: str = "") -> None:
        super().__init__(why)
        self.reply = HttpReply(status, f"{why or status.phrase}\n".encode())


class Plans:
    """Answers ``/plans``, ``/plans/NAMESPACE`` and ``/plans/NAMESPACE/NAME``: one at a time, in a
    thread of its own.
    """

    def __init__(
        self, client: Client, sources: Sources, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._client = client
        self._sources = sources
        self._loop = loop
        # One: a page takes CPU that repairs need, however many people ask.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plans")
        self._waiting: list[str] = []
        self._known: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()

    async def __call__(self, request: HttpRequest, address: str) -> HttpReply:
        """Answer a request, on the loop of the server."""
        token = token_of(request.headers.get("authorization", ""))
        # Without a question to the API server: strangers must cost nothing.
        if not token:
            return _UNKNOWN
        if (
            len(self._waiting) >= WAITING_MAX
            or self._waiting.count(address) >= WAITING_MAX_OF_ADDRESS
        ):
            return HttpReply(HTTPStatus.TOO_MANY_REQUESTS)
        self._waiting.append(address)
        work = partial(self._made, token, request.path, monotonic() + ANSWER_SECONDS)
        making = asyncio.get_running_loop().run_in_executor(self._thread, work)
        making.add_done_callback(lambda _: self._waiting.remove(address))
        return await asyncio.shield(making)  # whoever hangs up does not free the thread

    def stop(self) -> None:
        """Take no more requests, and wait for the pages that are being made: their answers go to a
        loop that must still be there.
        """
        self._thread.shutdown(cancel_futures=True)

    def _made(self, token: str, path: str, until: float) -> HttpReply:
        try:
            return self._answer(token, path, until)
        except _Refusal as refusal:
            return refusal.reply
        except (ApiError, ChangedError, TimeoutError) as error:
            log.warning(
                "a page of plans could not be made: %s",
                str(error) or "it took too long",
            )
            return HttpReply(HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, token: str, path: str, until: float) -> HttpReply:
        who = self._remembered(
            # The hash alone is kept: a dump of this process's memory is to hold no token that is
            # worth anything.
            sha256(token.encode()).digest(),
            lambda: who_brings(self._client, token, PLANS_AUDIENCE, _left(until)),
        )
        if who is None:
            return _UNKNOWN
        match path.removeprefix(PLANS_PATH).strip("/").split("/"):
            case [""]:
                return self._list(who, "", until)
            case [namespace]:
                return self._list(who, namespace, until)
            case [namespace, name]:
                return self._plan(who, (namespace, name), until)
        raise _Refusal(HTTPStatus.NOT_FOUND)

    def _list(self, who: User, only: str, until: float) -> HttpReply:
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
        return _page(
            plans_page(shown, unasked=len(namespaces) - len(asked), root=PLANS_PATH)
        )

    def _plan(self, who: User, key: Key, until: float) -> HttpReply:
        # Asked before it is looked for: only with the right to get it may one learn whether a model
        # exists.
        if not self._may("get", who, key[0], until):
            raise _forbidden("get", key[0])
        found = self._asked(self._sources.plan(key), until)
        if found is None:
            raise _Refusal(
                HTTPStatus.NOT_FOUND,
                f"there is no plan of record of a ShardedModel {key[1]} in {key[0]}",
            )
        return _page(page_of(*found))

    def _may(self, verb: str, who: User, namespace: str, until: float) -> bool:
        deed = Deed(verb=verb, resource=SHARDED_MODELS, namespace=namespace)
        return bool(
            self._remembered(
                # By the verb as well: the right to get one plan is not the right to list those of a
                # namespace.
                (verb, repr(sorted(who.items())), namespace),
                lambda: may(self._client, who, deed, _left(until)),
            )
        )

    def _asked(self, question: Coroutine[Any, Any, Answer], until: float) -> Answer:
        """Return the answer of the operator's loop, within the time that is left."""
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(
            _left(until)
        )

    def _remembered(self, mark: Hashable, ask: Callable[[], Any]) -> Any:
        found, until = self._known.get(mark, (None, 0.0))
        if monotonic() < until:
            return found
        found = ask()
        self._known[mark] = found, monotonic() + REMEMBERED_SECONDS
        self._known.move_to_end(mark)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found


def token_of(header: str) -> str:
    """Return the token of ``Authorization``, empty if there is none.

    A browser sends the words that were typed into its own box: the password is the token, the user
    name says nothing.

    >>> token_of("Bearer abc"), token_of("Basic bWU6YWJj"), token_of("Basic ?")
    ('abc', 'abc', '')
    """
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "basic":
        return credentials.strip() if scheme.lower() == "bearer" else ""
    try:
        typed = b64decode(credentials.strip(), validate=True).decode()
    except ValueError:
        return ""
    return typed.partition(":")[2].strip()


def page_of(subject: Subject, record: PlanRecord) -> str:
    """Return the page of a plan of record: the document of ``explain -o json``, without the other
    candidates.
    """
    report = record.report()
    # The request of another spec would be shown beside a plan that does not answer it.
    request = subject.request if record.input_hash == subject.input_hash else None
    nobody = Inventory(pools=())
    explanation = with_drawings(
        explain(report, request=request),
        report,
        model=subject.model,
        inventory=nobody,
        surveyed=(),
    )
    return plan_page(explanation_document(subject, report, explanation))


def listed(content: KubernetesObject) -> Listed:
    """Return a row of the list from a resource as the caches have it."""
    metadata = content["metadata"]
    status = content.get("status") or {}
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    ready = next(
        (
            str(item.get("reason"))
            for item in conditions
            if item.get("type") == ConditionType.READY
        ),
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


def _page(text: str) -> HttpReply:
    # ASCII, so that no half of a surrogate pair or wrong guess of an encoding breaks the page.
    body = text.encode("ascii", "xmlcharrefreplace")
    # Refused, not cut: half a page would show half of a plan as all of it.
    if len(body) > PAGE_MAX_BYTES:
        raise _Refusal(
            HTTPStatus.INSUFFICIENT_STORAGE,
            f"the page has {len(body):,} bytes, {PAGE_MAX_BYTES:,} at most are sent",
        )
    return HttpReply(HTTPStatus.OK, body, _HTML)


def _forbidden(verb: str, namespace: str) -> _Refusal:
    return _Refusal(
        HTTPStatus.FORBIDDEN, f"you may not {verb} ShardedModels in {namespace}"
    )


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
