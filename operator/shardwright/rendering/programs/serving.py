"""Watches that the engine brings tokens: /health says 200 while every request hangs.

Runs beside the engine in the leader's container with nothing but Python's standard library.

    serving.py COUNTERS KEY_VARIABLE PORT VERDICT_FILE SILENCE_SECONDS IDLE_SECONDS POLL_SECONDS
    STALE_SECONDS

COUNTERS is the module beside this one that reads the engine's counters, KEY_VARIABLE the
environment variable that holds what clients must send, where it is set.

The verdict file has one line, written anew by every look: the seconds since the node's start, and
``serving`` or why not. There is none until the first token has come, and nobody trusts one that is
older than STALE_SECONDS; a look that takes longer ends the program by SIGALRM. Progress is any
change of the engine's own token counters, so a saturated engine is never silent; after IDLE_SECONDS
without a request it is asked for one token. An engine that takes no such request serves as long as
its health says so. Ends with code 78 when no token has come for twice SILENCE_SECONDS though one
was due; whoever started it starts it again after any other end.
"""

import http.client
import importlib
import json
import os
import signal
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn, Protocol

ANSWER_SECONDS = 4.0
SILENT = 78


class Counters(Protocol):
    """What an engine says about its work, read from its /metrics."""

    def read(self, metrics: str, answers: int, /) -> tuple[float, float] | None:
        """Return what it has done so far, in any unit that grows, and its open requests; None where
        it does not say.

        ``answers`` are the requests of this program that it has answered.
        """


class Watch:
    """When a token came last, and since when one is due."""

    def __init__(self, silence: float, idle: float) -> None:
        self.silence, self.idle = silence, idle
        self.tokens: float | None = None
        self.came = 0.0  # when the last token came
        self.due: float | None = None  # since when the engine owes one
        self.asked = False  # by us, in vain
        self.ever = False  # a token has come

    def look(self, tokens: float | None, requests: float, now: float) -> None:
        """Take in the counters; ``tokens`` is None where the engine did not answer."""
        if tokens is not None and tokens != self.tokens:
            self.ever = self.ever or tokens > 0
            self.tokens, self.came, self.asked = tokens, now, False
            self.due = now if requests else None
        elif requests or tokens is None or self.asked:
            self.due = now if self.due is None else self.due
        else:
            self.due = None

    def ask_now(self, now: float) -> bool:
        """Return whether nobody wants a token and none has come for a while, or none came when it
        was asked for.
        """
        idle = self.due is None and (not self.ever or now - self.came >= self.idle)
        return idle or self.asked

    def asked_in_vain(self, since: float) -> None:
        """Note that the engine was asked for a token at a time and has brought none."""
        self.asked = True
        self.due = since if self.due is None else min(self.due, since)

    def verdict(self, now: float) -> str:
        """Return ``serving``, an empty string where no token has ever come, or why it does not
        serve.
        """
        if not self.ever:
            return ""
        if self.due is None or now - self.due < self.silence:
            return "serving"
        return f"no token for {now - self.due:.0f} s"

    def over(self, now: float) -> bool:
        """Return whether it is silent for so long that it will not come back."""
        return self.ever and self.due is not None and now - self.due >= 2 * self.silence


class Engine:
    """The engine's HTTP server on this pod."""

    def __init__(self, port: int, silence: float, counters: Counters, key: str) -> None:
        self.port, self.silence, self.reader = port, silence, counters
        self.headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        self.name, self.answered = "", 0

    def counters(self) -> tuple[float, float] | None:
        """Return what the engine has done so far and its open requests, or None without an answer
        or such counters.
        """
        status, body = self.call("GET", "/metrics", ANSWER_SECONDS)
        return self.reader.read(body, self.answered) if status == HTTPStatus.OK else None

    def ask(self) -> bool:
        """Ask for one token; return whether the engine takes such requests at all."""
        if not self.name:
            status, body = self.call("GET", "/v1/models", ANSWER_SECONDS)
            self.name = json.loads(body)["data"][0]["id"] if status == HTTPStatus.OK else ""
        request = {"model": self.name, "prompt": "1", "max_tokens": 1, "temperature": 0}
        status, _ = self.call("POST", "/v1/completions", self.silence, json.dumps(request))
        self.answered += status == HTTPStatus.OK
        refused = (
            HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
            and status != HTTPStatus.TOO_MANY_REQUESTS
        )
        return not refused and status != HTTPStatus.NOT_IMPLEMENTED

    def call(self, method: str, path: str, seconds: float, body: str = "") -> tuple[int, str]:
        """Return the status and the body of an answer; status 0 without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, body or None, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()


def write(file: Path, verdict: str) -> None:
    """Replace the verdict in one step: a probe reads it at any time, and reads the same clock."""
    seconds = Path("/proc/uptime").read_text().partition(".")[0]
    partial = file.with_suffix(".partial")
    partial.write_text(f"{seconds} {verdict}\n")
    partial.replace(file)


def take_in(engine: Engine, watch: Watch) -> None:
    """Read the counters; before the first token an engine that does not answer is still
    starting.
    """
    counted = engine.counters()
    if counted is not None:
        watch.look(*counted, time.monotonic())
    elif watch.ever:
        watch.look(None, 0.0, time.monotonic())


def ask(engine: Engine, watch: Watch) -> bool:
    """Ask for one token; return whether the engine takes such requests at all."""
    since, before = time.monotonic(), watch.tokens
    takes = engine.ask()
    take_in(engine, watch)
    if takes and watch.tokens == before:
        watch.asked_in_vain(since)
    return takes


def vouch(file: Path, poll: float, stale: float) -> NoReturn:
    """Say for ever that the engine serves: what is left is /health."""
    print(
        "serving: the engine takes no completions, so only its health is watched",
        file=sys.stderr,
        flush=True,
    )
    while True:
        signal.setitimer(signal.ITIMER_REAL, stale)
        write(file, "serving")
        time.sleep(poll)


def main(counters: str, key_variable: str, port: str, verdict_file: str, *seconds: str) -> None:
    """Watch until the engine is silent for good."""
    silence, idle, poll, stale = map(float, seconds)
    reader: Counters = importlib.import_module(counters).Counters()
    engine, watch = (
        Engine(int(port), silence, reader, os.environ.get(key_variable, "")),
        Watch(silence, idle),
    )
    file, said = Path(verdict_file), ""
    while True:
        signal.setitimer(signal.ITIMER_REAL, stale)
        take_in(engine, watch)
        started = watch.tokens is not None
        if started and watch.ask_now(time.monotonic()) and not ask(engine, watch):
            vouch(file, poll, stale)
        verdict = watch.verdict(time.monotonic())
        if verdict:
            write(file, verdict)
        if verdict != "serving" and said == "serving":
            print(f"serving: {verdict}", file=sys.stderr, flush=True)
        said = verdict
        if watch.over(time.monotonic()):
            sys.exit(SILENT)
        time.sleep(poll)


if __name__ == "__main__":
    main(*sys.argv[1:])
