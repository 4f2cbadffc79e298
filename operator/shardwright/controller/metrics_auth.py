"""Who may scrape: the API server's answers are remembered, so that no flood reaches it."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from time import monotonic
from typing import Final, Generic, TypeVar

from shardwright.cluster.calls import ApiError

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

T = TypeVar("T")


class Desk:
    """A thread that answers questions one by one; few may wait, and fewer from one address."""

    def __init__(self, name: str, waiting_max: int) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting_max = waiting_max
        # Questions by address; none of 0.
        self._waiting: Counter[str] = Counter()

    def asked(self, address: str, question: Callable[[], T]) -> asyncio.Future[T] | None:
        """Return the future answer, None if too many wait already."""
        if (
            self._waiting[address] >= WAITING_MAX_OF_ADDRESS
            or self._waiting.total() >= self._waiting_max
        ):
            return None
        self._waiting[address] += 1
        answer = asyncio.get_running_loop().run_in_executor(self._thread, question)
        answer.add_done_callback(lambda _: self._left(address))
        # Whoever hangs up does not free the thread.
        return asyncio.shield(answer)

    def _left(self, address: str) -> None:
        self._waiting[address] -= 1
        # Unary plus leaves out counts of 0: addresses of strangers would gather without end.
        self._waiting = +self._waiting

    def stop(self) -> None:
        """Take no more questions, and wait for the current one, whose answer needs its loop."""
        self._thread.shutdown(cancel_futures=True)


class Memory(Generic[T]):
    """The last answers by what was asked, each of which holds for a while."""

    def __init__(self, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._clock = clock
        self._found: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def __contains__(self, mark: Hashable) -> bool:
        """Return whether there is an answer, also one that holds no longer."""
        return mark in self._found

    def get(self, mark: Hashable) -> T | None:
        """Return the answer, None if none holds."""
        answer, until = self._found.get(mark, (None, 0.0))
        return answer if self._clock() < until else None

    def put(self, mark: Hashable, answer: T) -> None:
        """Remember an answer, and forget the oldest for which there is no place."""
        self.forget(mark)
        self._found[mark] = (answer, self._clock() + REMEMBERED_SECONDS)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def forget(self, mark: Hashable) -> None:
        """Forget the answer, if there is one."""
        self._found.pop(mark, None)


def mark_of(token: str) -> bytes:
    """Return by what a token is remembered."""
    # The hash alone is kept: a dump of this process's memory is to hold no token that is worth
    # anything.
    return sha256(token.encode()).digest()


@dataclass(frozen=True)
class _Judge:
    """A desk, and its verdicts by token."""

    desk: Desk
    found: Memory[HTTPStatus]


class MetricsAuth:
    """Judges tokens on a server's loop; ``review`` asks the API server, and blocks.

    An admitted token has a thread of its own, which strangers cannot block. A new or renewed one
    waits with strangers'; few from one address may wait, so a flood keeps only its own address out.
    A NetworkPolicy stands against floods from many addresses.
    """

    def __init__(
        self, review: Callable[[str], HTTPStatus], clock: Callable[[], float] = monotonic
    ) -> None:
        self._review = review
        self._clock = clock
        self._tell_at = 0.0
        # Each judge by itself: a flood of new tokens pushes no scraper out.
        self._known, self._strangers = (
            _Judge(Desk(name, WAITING_MAX), Memory(REMEMBERED_MAX, clock))
            for name in ("scrapers", "strangers")
        )

    async def __call__(self, authorization: str, address: str) -> HTTPStatus | None:
        """Return why a client with this header and address is refused, None if it is not."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return HTTPStatus.UNAUTHORIZED
        mark = mark_of(token)
        # A token that was admitted once keeps its own thread when its answer is asked for anew.
        judge = self._known if mark in self._known.found else self._strangers
        verdict = judge.found.get(mark)
        if verdict is None:
            answer = judge.desk.asked(address, lambda: self._review(token))
            if answer is None:
                return HTTPStatus.TOO_MANY_REQUESTS
            try:
                verdict = await answer
            except ApiError as error:
                self._tell(error)
                return HTTPStatus.SERVICE_UNAVAILABLE
            self._remember(mark, verdict)
        return None if verdict is HTTPStatus.OK else verdict

    def _remember(self, mark: bytes, verdict: HTTPStatus) -> None:
        # A verdict may change, and then it must not stand in both.
        for judge in (self._known, self._strangers):
            judge.found.forget(mark)
        judge = self._known if verdict is HTTPStatus.OK else self._strangers
        judge.found.put(mark, verdict)

    def _tell(self, error: ApiError) -> None:
        if (now := self._clock()) >= self._tell_at:
            self._tell_at = now + TOLD_SECONDS
            log.warning(
                "who asks for metrics cannot be found out: %s",
                error,
                extra={"reason": error.reason},
            )

    def stop(self) -> None:
        """Take no more questions, and wait for the current ones."""
        self._known.desk.stop()
        self._strangers.desk.stop()
