"""Requests that go on while something happens: sent by threads in the client's pod, counted
there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from tests.harness.waiting import wait_for
from tests.kind.serving import CLIENT, NAMESPACE, Served

_SEND = """
import json, os, sys, threading, time, urllib.request
url, body, threads, stop = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3]), sys.argv[4]
answered, failed, seconds = [], [], []
def send():
    while not os.path.exists(stop):
        began = time.monotonic()
        try:
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            tokens = json.load(urllib.request.urlopen(request, timeout=120))["usage"]["completion_tokens"]
            answered.append(tokens)
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")
            time.sleep(0.2)  # a client that is refused does not spin, or one outage would count as thousands of failures
        seconds.append(time.monotonic() - began)
senders = [threading.Thread(target=send) for _ in range(threads)]
for sender in senders: sender.start()
open(stop + ".sending", "w").close()
for sender in senders: sender.join()
print(json.dumps([len(answered), failed, max(seconds)]))
"""


@dataclass(frozen=True)
class Tally:
    """What became of the requests."""

    answered: int
    failed: list[str]
    longest_seconds: float


class Load:
    """Requests that are being sent."""

    def __init__(self, served: Served, threads: int, tokens: int, pool: ThreadPoolExecutor) -> None:
        self._served, self._stop = served, f"/tmp/{uuid4().hex}"
        words = [
            "python3",
            "-c",
            _SEND,
            served.url,
            served.question([1, 2, 3], tokens),
            str(threads),
            self._stop,
        ]
        self._sent: Future[str] = pool.submit(
            served.cluster.kubectl, "-n", NAMESPACE, "exec", CLIENT, "--", *words
        )
        try:
            wait_for(
                lambda: self._inside("ls", f"{self._stop}.sending"), 60, "requests to be sent", 0.2
            )
        except BaseException:
            self._inside("touch", self._stop)  # nobody else would: the thread waits for its senders
            raise

    def end(self) -> Tally:
        """Let every sender finish its request and return what became of them all."""
        self._inside("touch", self._stop)
        return Tally(*json.loads(self._sent.result()))

    def _inside(self, *words: str) -> bool:
        self._served.cluster.kubectl("-n", NAMESPACE, "exec", CLIENT, "--", *words)
        return True


@contextmanager
def load(served: Served, *, threads: int, tokens: int = 16) -> Iterator[Load]:
    """Send requests with so many threads, each the next when its last was answered, until `end` is
    called.
    """
    with ThreadPoolExecutor(1) as pool:
        sending = Load(served, threads, tokens, pool)
        try:
            yield sending
        finally:
            sending.end()
