"""Judges scrapers: the API server is asked, its answer is remembered for a while, and no flood of
questions becomes an attack on it.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from time import monotonic
from typing import Final

from shardwright.cluster.calls import ApiError
from shardwright.cluster.reviews import TokenVerdict

log = logging.getLogger(__name__)

REMEMBERED_SECONDS: Final = 10.0
"""How long an answer holds. Basis: as the API server itself remembers tokens
(``--authentication-token-webhook-cache-ttl`` of Kubernetes' own components, 10 s).
"""

REVIEW_SECONDS: Final = 4.0
"""How long the API server may take for an answer. Basis: assumed; less than a client has for its
exchange.
"""

REMEMBERED_MAX: Final = 64  # tokens, of those that were admitted and of the others

# how seldom the log says that the API server does not answer: strangers may ask without end
TOLD_SECONDS: Final = 60.0

WAITING_MAX: Final = 16
"""Questions that wait at once, of each kind; they are asked one after the other. Basis: assumed; a
cluster has one or two who scrape, and as many questions take less than :data:`REVIEW_SECONDS` where
the API server answers within 0.25 s.
"""

WAITING_MAX_OF_ADDRESS: Final = 2
"""How many of them may come from one address. Basis: assumed; one that its client has given up, and
the next.
"""

_STATUS: Final[Mapping[TokenVerdict, HTTPStatus | None]] = {
    TokenVerdict.UNKNOWN: HTTPStatus.UNAUTHORIZED,
    TokenVerdict.FORBIDDEN: HTTPStatus.FORBIDDEN,
    TokenVerdict.ADMITTED: None,
}


@dataclass
class _Desk:
    """A thread that asks, and its findings: hash of a token to its verdict, and until when that
    holds.
    """

    name: str
    found: OrderedDict[bytes, tuple[TokenVerdict, float]] = field(
        default_factory=OrderedDict
    )
    # Questions by address; none of 0.
    waiting: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self.name)

    def is_full(self, address: str) -> bool:
        return (
            self.waiting[address] >= WAITING_MAX_OF_ADDRESS
            or self.waiting.total() >= WAITING_MAX
        )

    def left(self, address: str) -> None:
        self.waiting[address] -= 1
        # Unary plus leaves out counts of 0: addresses of strangers would gather without end.
        self.waiting = +self.waiting


class Scrapers:
    """Judges tokens on the loop of a server; ``review`` asks the API server, and blocks.

    A token that was admitted has a thread of its own: strangers keep it from nothing. One that is
    new, also one that was renewed, waits with those of strangers; of one address only a few wait,
    so that a flood keeps its own address out. Against strangers of many addresses stands a
    NetworkPolicy.
    """

    def __init__(
        self,
        review: Callable[[str], TokenVerdict],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._review = review
        self._clock = clock
        self._tell_at = 0.0
        self._known, self._strangers = _Desk("scrapers"), _Desk("strangers")

    async def __call__(self, authorization: str, address: str) -> HTTPStatus | None:
        """Return why a client that sends this header from this address is refused, None if it is
        not.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return HTTPStatus.UNAUTHORIZED
        # The hash alone is kept: a dump of this process's memory is to hold no token that is worth
        # anything.
        mark = sha256(token.encode()).digest()
        # A token that was admitted once keeps its own thread when its answer is asked for anew.
        desk = self._known if mark in self._known.found else self._strangers
        verdict, until = desk.found.get(mark, (TokenVerdict.UNKNOWN, 0.0))
        if self._clock() < until:
            return _STATUS[verdict]
        if desk.is_full(address):
            return HTTPStatus.TOO_MANY_REQUESTS
        try:
            return _STATUS[
                self._remembered(mark, await self._asked(desk, token, address))
            ]
        except ApiError as error:
            self._tell(error)
            return HTTPStatus.SERVICE_UNAVAILABLE

    async def _asked(self, desk: _Desk, token: str, address: str) -> TokenVerdict:
        desk.waiting[address] += 1
        question = asyncio.get_running_loop().run_in_executor(
            desk.thread, self._review, token
        )
        question.add_done_callback(lambda _: desk.left(address))
        # Whoever hangs up does not free the thread.
        return await asyncio.shield(question)

    def _remembered(self, mark: bytes, verdict: TokenVerdict) -> TokenVerdict:
        # A verdict may change, and then it must not stand in both.
        for desk in (self._known, self._strangers):
            desk.found.pop(mark, None)
        found = (
            self._known if verdict is TokenVerdict.ADMITTED else self._strangers
        ).found
        found[mark] = (verdict, self._clock() + REMEMBERED_SECONDS)
        # Each desk by itself: a flood of new tokens pushes no scraper out.
        while len(found) > REMEMBERED_MAX:
            found.popitem(last=False)
        return verdict

    def _tell(self, error: ApiError) -> None:
        if (now := self._clock()) >= self._tell_at:
            self._tell_at = now + TOLD_SECONDS
            log.warning(
                "who asks for metrics cannot be found out: %s",
                error,
                extra={"reason": error.reason},
            )

    def stop(self) -> None:
        """Take no more questions, and wait for the present ones: its answer goes to a loop that
        must still be there.
        """
        for desk in (self._known, self._strangers):
            desk.thread.shutdown(cancel_futures=True)
