"""Reads all objects of a kind for ever: LIST, then WATCH, on its own thread; keeps projections.

The end of a watch (an expired version, an ERROR, events out of order) leads to a new LIST, whose
difference is handed over: nothing deleted meanwhile stays, even if written by us before any event.
A refusal or silence changes nothing that is known; it is retried after a pause, logged once, and
shown in :attr:`Reader.health`. One object's fault concerns that object alone. An event that changes
no projection never leaves the thread.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from sys import intern
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from shardwright.cluster.calls import JSON, METADATA
from shardwright.cluster.client import CHUNK, Call, Client
from shardwright.cluster.handover import Change, Key
from shardwright.cluster.json_stream import (
    BrokenError,
    Lines,
    ListDocument,
    SilentError,
    Unreadable,
    metadata_of,
)
from shardwright.cluster.resources import Collection, Resource
from shardwright.cluster.streams import (
    ReadError,
    Stream,
    Trouble,
    check_may,
    error_in_stream,
    event_of,
    open_stream,
)

log = logging.getLogger(__name__)

# Share by which times differ at random, so that not everything comes at once.
SPREAD: Final = 0.2

V = TypeVar("V")

Deliver = Callable[[Mapping[Key, Change[Any]], bool], None]
"""Takes changes on the reader's thread, and whether they complete a LIST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things may take, in seconds.

    A server sends a bookmark every minute, so longer silence is a dead connection. A watch ends
    after ``watch``; a LIST follows once the last is older than ``relist``, as an API server may
    forget an event. A stream that stood for ``proof`` was a good one. ``longest_pause`` bounds the
    pause between attempts: with its spread and a LIST, all is read again 60 s after the end of any
    outage.
    """

    silence: float = 90.0
    watch: int = 300
    relist: float = 1800.0
    proof: float = 10.0
    first_pause: float = 0.5
    longest_pause: float = 30.0


PASSING: Final = frozenset({Trouble.EXPIRED, Trouble.BROKEN, Trouble.SILENT})
"""What happens to every stream now and then, and means something only when it happens again at
once.
"""

DOUBTFUL: Final = frozenset({Trouble.BROKEN, Trouble.SILENT, Trouble.FAILING})
"""Troubles that, repeated at once, may come from a version unknown to the API server: after a
restore of etcd.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderHealth:
    """A reader's health; ``failing_since`` (monotonic seconds) is None if it reads, ``served``:
    the kind exists.
    """

    synced: bool = False
    served: bool = True
    failing_since: float | None = None
    trouble: Trouble | None = None
    message: str = ""


@dataclass(slots=True)
class Counts:
    """A reader's work since the start; written by its thread alone."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    changes: int = 0
    failures: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[V]):
    """The objects to read and what to keep: by ``project``, or ``stand_in`` if that fails.

    ``query`` holds selectors. An ``optional`` kind may be missing or forbidden, which is asked
    first: then it has no objects. With a ``namespace`` only its objects are read; nobody waits for
    them if they are forbidden.
    """

    resource: Resource
    project: Callable[[dict[str, Any]], V | None]
    query: tuple[tuple[str, str], ...] = ()
    metadata_only: bool = False
    optional: bool = False
    namespace: str | None = None
    stand_in: Callable[[Key], V | None] = lambda _key: None

    @property
    def objects(self) -> Collection:
        """Return the collection that is read."""
        return Collection(resource=self.resource, namespace=self.namespace)


class Reader(threading.Thread, Generic[V]):
    """Reads one source until :meth:`stop`; ``deliver`` is called on its thread."""

    def __init__(
        self, client: Client, source: Source[V], deliver: Deliver, timing: Timing | None = None
    ) -> None:
        # A thread and no task: decoding holds the loop up for no longer than the interpreter's
        # switch interval (ADR 9).
        super().__init__(name=str(source.objects), daemon=True)
        self.counts = Counts()
        self._client = client
        self._source = source
        self._deliver = deliver
        self._timing = timing or Timing()
        self._known: dict[Key, V] = {}
        # By us, and not heard of yet, with the version of the write.
        self._written: dict[Key, int] = {}
        self._lock = threading.Lock()  # of what was written
        self._version = ""  # to watch from; none: list first
        self._list_due = 0.0
        self._failures = 0  # since a stream was a good one
        self._suspect = False  # the last stream went wrong after it had been opened
        self._health = ReaderHealth()
        self._opened_at: float | None = None  # the stream that is open
        self._complained: set[Key] = set()
        self._stopping = threading.Event()
        self._stream: Stream | None = None

    @property
    def health(self) -> ReaderHealth:
        """Return the reader's health; a stream that has stood for a while is trusted."""
        health = self._health
        opened_at = self._opened_at
        stands = opened_at is not None and monotonic() - opened_at >= self._timing.proof
        return _well(health) if stands and health.trouble is not Trouble.SILENT else health

    def expect(self, key: Key, version: int) -> None:
        """Note that an object was stored at this version; it may be gone before any event."""
        # Told on the loop and read on this thread.
        with self._lock:
            self._written[key] = version

    def stop(self) -> None:
        """End soon."""
        self._stopping.set()
        # Shut down, not only told: a quiet watch waits in the socket for up to 90 s.
        if stream := self._stream:
            stream.end()

    def run(self) -> None:
        """Read until stopped."""
        while not self._stopping.is_set():
            try:
                # Asked first, as a refused LIST every half a minute would stand in the audit log of
                # each cluster without the kind.
                if self._source.optional and (self._failures or not self._version):
                    check_may(self._client, self._source.objects, self._timing.silence)
                if not self._version or monotonic() >= self._list_due:
                    self._list()
                self._watch()
            except ReadError as error:
                self._fail(error)
            except Exception as error:
                # What was taken over may be half of a batch: only a LIST tells what there is.
                log.exception("a fault of ours while reading %s", self.name)
                self._version = ""
                self._fail(ReadError(Trouble.FAULT, repr(error)))

    def _list(self) -> None:
        found: dict[Key, Change[V]] = {}
        version = ""
        cursor = ""
        while True:
            fields = self._page(cursor, found)
            metadata = metadata_of(fields)
            # Of the first page: changes while the others are read are in the watch from there.
            version = version or str(metadata.get("resourceVersion") or "")
            cursor = str(metadata.get("continue") or "")
            # A list without a version cannot be watched from, so it is none.
            if not version:
                raise ReadError(Trouble.BROKEN, f"the answer to LIST {self.name} is no list")
            if not cursor:
                break
        # After the last page: the difference to half a LIST would say that the other half is gone.
        self._take_over(found, version)

    def _page(self, cursor: str, found: dict[Key, Change[V]]) -> Mapping[str, Any]:
        query = (("limit", str(CHUNK)), *((("continue", cursor),) if cursor else ()))
        with self._open("list", query) as chunks:
            document = ListDocument(chunks)
            try:
                for item in document.items():
                    key, change = self._projected(item)
                    # Objects of no interest are not kept at all: of 20,000 pods most hold no GPU.
                    if change.value is not None:
                        found[key] = change
            except BrokenError as error:
                raise ReadError(
                    Trouble.BROKEN, f"the answer to LIST {self.name} is no list: {error}"
                ) from error
        return document.fields

    def _take_over(self, found: dict[Key, Change[V]], version: str) -> None:
        number = _number(version)
        changes = {
            key: change
            for key, change in found.items()
            # By identity, as _projected hands back the known value where nothing has changed.
            if self._known.get(key) is not change.value
        }
        # No ghosts: no event will ever tell of objects that were deleted while a watch was broken
        # (ADR 9).
        changes |= {
            key: Change(None, number)
            for key in (self._known.keys() | self._heard(number)) - found.keys()
        }
        self._apply(changes)
        self._version = version
        self._list_due = monotonic() + _spread(self._timing.relist)
        self.counts.lists += 1
        # Also without a change: it says that this LIST is complete, for which the caches wait.
        self._deliver(changes, True)
        self._health = replace(self._health, synced=True, served=True)

    def _heard(self, version: int) -> frozenset[Key]:
        """Return the keys written up to a version read, which tells whether they exist."""
        with self._lock:
            heard = frozenset(key for key, written in self._written.items() if written <= version)
            self._written = {
                key: written for key, written in self._written.items() if key not in heard
            }
        return heard

    def _watch(self) -> None:
        query = (
            ("watch", "true"),
            # Bookmarks keep the version young in silence, and show a dead connection.
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(max(1, round(_spread(self._timing.watch))))),
            ("resourceVersion", self._version),
        )
        with self._open("watch", query) as chunks:
            self.counts.watches += 1
            if not self._suspect:
                self._prove()
            self._opened_at = opened_at = monotonic()
            try:
                self._follow(chunks)
            except BrokenError as error:
                if (
                    not isinstance(error, SilentError)
                    and monotonic() - opened_at >= self._timing.proof
                ):
                    self._prove()  # something between us and the server ends what is quiet
                trouble = Trouble.SILENT if isinstance(error, SilentError) else Trouble.BROKEN
                raise ReadError(
                    trouble, f"the watch of {self.name} is broken: {error}", established=True
                ) from error
            finally:
                self._opened_at = None
        if monotonic() - opened_at < self._timing.proof:
            raise ReadError(
                Trouble.BROKEN, f"the watch of {self.name} has ended too soon", established=True
            )
        self._prove()

    def _follow(self, chunks: Iterator[bytes]) -> None:
        lines = Lines()
        for chunk in chunks:
            self._take_events(lines, chunk)
        lines.end()

    def _take_events(self, lines: Lines, chunk: bytes) -> None:
        changes: dict[Key, Change[V]] = {}
        try:
            for event in lines.feed(chunk):
                self._take_event(event, changes)
        finally:
            # Events before a broken one count: the version to watch from has passed them.
            self._miss_written(changes)
            if changes:
                self._apply(changes)
                self._deliver(changes, False)

    def _miss_written(self, changes: dict[Key, Change[V]]) -> None:
        """Add objects written before the last event but missing: they came and went."""
        version = _number(self._version)
        for key in self._heard(version) if self._written else ():
            if key not in self._known and key not in changes:
                changes[key] = Change(None, version)

    def _take_event(self, event: Any, changes: dict[Key, Change[V]]) -> None:
        self.counts.events += 1
        if isinstance(event, Unreadable):
            key, change = self._projected(event, before=changes)
        else:
            kind, content = event_of(event)
            if kind == "ERROR":
                raise error_in_stream(content)
            self._move_on(str(metadata_of(content).get("resourceVersion") or ""))
            self._prove()
            if kind == "BOOKMARK":
                return
            key, change = self._projected(content, gone=kind == "DELETED", before=changes)
        known = changes[key].value if key in changes else self._known.get(key)
        # By identity, as _projected hands back the known value: an event that changes nothing never
        # leaves the thread.
        if change.value is not known:
            changes[key] = change

    def _move_on(self, version: str) -> None:
        # Before Kubernetes 1.35 versions were opaque by contract; they are numbers on every API
        # server that there is.
        if not version or 0 < _number(version) < _number(self._version):
            self._version = ""
            raise ReadError(
                Trouble.BROKEN, f"events of {self.name} come without order", established=True
            )
        self._version = version

    def _projected(
        self, content: Any, *, gone: bool = False, before: Mapping[Key, Change[V]] | None = None
    ) -> tuple[Key, Change[V]]:
        """Return the kept part of an object: the known one if nothing in it has changed."""
        if isinstance(content, Unreadable):
            key = intern(content.namespace), content.name
            if self._is_news(key):
                log.error("%s %s cannot be read: %s", self.name, "/".join(key), content.why)
            return key, Change(self._source.stand_in(key) if key[1] else None, 0)
        metadata = metadata_of(content)
        key = (intern(str(metadata.get("namespace") or "")), str(metadata.get("name") or ""))
        version = _number(str(metadata.get("resourceVersion") or ""))
        if gone:
            self._complained.discard(key)
            return key, Change(None, version)
        try:
            value = self._source.project(content)
        except Exception:
            if self._is_news(key):
                log.exception("%s %s cannot be read: a fault of ours", self.name, "/".join(key))
            # A fault of ours concerns this object alone: the next one of the LIST is read.
            value = self._source.stand_in(key)
        changed = (before or {}).get(key)
        known = changed.value if changed else self._known.get(key)
        # The known one where they are equal: its texts are shared, and the new one is forgotten at
        # once.
        return key, Change(known if known == value else value, version)

    def _is_news(self, key: Key) -> bool:
        """Count an unreadable object and return whether that is news."""
        self.counts.unreadable += 1
        said = key in self._complained
        self._complained.add(key)
        return not said

    def _apply(self, changes: Mapping[Key, Change[V]]) -> None:
        self.counts.changes += len(changes)
        for key, change in changes.items():
            if change.value is None:
                self._known.pop(key, None)
            else:
                self._known[key] = change.value

    @contextmanager
    def _open(self, verb: str, query: tuple[tuple[str, str], ...]) -> Iterator[Iterator[bytes]]:
        source = self._source
        call = Call(
            verb=verb,
            resource=source.objects.resource,
            path=source.objects.path,
            method="GET",
            query=(*source.query, *query),
            accept=METADATA[verb] if source.metadata_only else JSON,
        )
        with open_stream(self._client, call, self._timing.silence) as stream:
            self._stream = stream
            try:
                yield self._until_stopped(stream)
            finally:
                self._stream = None

    def _until_stopped(self, stream: Stream) -> Iterator[bytes]:
        chunks = iter(stream)
        while not self._stopping.is_set():
            if not (chunk := next(chunks, b"")):
                return
            yield chunk
        raise BrokenError("stopped")

    def _prove(self) -> None:
        self._failures, self._suspect = 0, False
        if self._health.failing_since is not None:
            log.info(
                "%s can be read again, after %.0f s",
                self.name,
                monotonic() - self._health.failing_since,
            )
            self._health = _well(self._health)

    def _fail(self, error: ReadError) -> None:
        """Note a failure, log it if it is news, and wait before the next attempt."""
        if self._stopping.is_set():
            return
        self._failures += 1
        self._suspect = error.established
        if error.trouble is Trouble.EXPIRED or (error.trouble in DOUBTFUL and self._failures > 1):
            # Doubtful the second time: after a restore of etcd the API server may not know the
            # version, and says so in many ways.
            self._version = ""
        if self._source.optional and error.trouble in {Trouble.NOT_SERVED, Trouble.FORBIDDEN}:
            self._do_without(error.trouble)
        elif self._failures > 1 or error.trouble not in PASSING:
            self._show(error)
        if (
            self._source.namespace
            and error.trouble is Trouble.FORBIDDEN
            # Nobody waits for the first LIST of a kind that is refused: the others would never be
            # complete.
            and not self._health.synced
        ):
            self._deliver({}, True)
            self._health = replace(self._health, synced=True)
        self.counts.failures += 1
        # Not sleep: an end must not wait for the longest pause.
        self._stopping.wait(self._pause())

    def _pause(self) -> float:
        return _spread(
            min(
                self._timing.longest_pause,
                self._timing.first_pause * float(2 ** min(self._failures - 1, 16)),
            )
        )

    def _show(self, error: ReadError) -> None:
        # Said once: it is tried again every half a minute, for as long as the trouble lasts.
        if self._health.trouble is not error.trouble:
            log.warning(
                "cannot read %s (%s), trying again and again: %s",
                self.name,
                error.trouble.value,
                str(error),
            )
        since = monotonic() if self._health.failing_since is None else self._health.failing_since
        self._health = replace(
            self._health, failing_since=since, trouble=error.trouble, message=str(error)
        )

    def _do_without(self, trouble: Trouble) -> None:
        """Go on without an optional kind; objects that are merely forbidden may still exist."""
        changes: dict[Key, Change[V]] = {}
        if trouble is Trouble.NOT_SERVED:
            changes = {key: Change(None, 0) for key in self._known}
            self._version = ""
        self._apply(changes)
        if changes or not self._health.synced:
            self._deliver(changes, True)
        self._health = ReaderHealth(synced=True, served=False)


def _well(health: ReaderHealth) -> ReaderHealth:
    return replace(health, failing_since=None, trouble=None, message="")


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdecimal() else 0


def _spread(seconds: float) -> float:
    return seconds * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311  # spreads load, guards nothing
