"""The operator's own program, in which everything goes wrong that writes to standard error by
itself; then it is told to end.

``python -m tests.support.provoking KUBECONFIG``
"""

import asyncio
import logging
import os
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Awaitable

from shardwright.controller.__main__ import main
from tests.support.hostile_text import HOSTILE

ENDS = "shardwright.controller.operator"
LISTENS = "listening"


class Provoked(Exception):  # noqa: N818  # it is meant
    """What is raised, with a name of its own to look for."""


class Provoker(logging.Handler):
    """Provokes all of it as soon as the operator says that it listens."""

    def emit(self, record: logging.LogRecord) -> None:
        if LISTENS in record.msg:
            port = int(record.getMessage().split(", ")[1].split()[0])
            loop = asyncio.get_running_loop()
            loop.call_soon(_raise, "in a callback")
            loop.call_soon(_forget, asyncio.ensure_future(_fail()))
            loop.call_soon(_complain)
            loop.call_later(1, threading.Thread(target=_rest, args=[port]).start)


class Undead:
    """Cannot even end."""

    def __del__(self) -> None:
        _raise("in a destructor")


def _raise(where: str) -> None:
    raise Provoked(f"{where}\n\x1b[31m{{}}")


async def _fail() -> None:
    _raise("in a task")


def _forget(task: Awaitable[None]) -> None:
    """Let go of a task whose exception nobody will ask for."""
    del task


def _complain() -> None:
    """Write what libraries and carelessness write."""
    Undead()
    warnings.warn("a warning\nof two lines", stacklevel=1)
    _never_awaited()
    logging.getLogger("kopf.objects").error("of kopf\n%s", "\x1b[31m")
    logging.getLogger("asyncio").warning("of asyncio")
    logging.getLogger("shardwright").info("%d does not fit", "a word")
    logging.getLogger("shardwright").info(
        "a bad number", extra={"seconds": float("nan"), "key": "\x1b[2J", "fields": ("\u202e",)}
    )
    for text in HOSTILE.values():
        logging.getLogger("shardwright").warning("%s", text, extra={"key": text, "reason": text})
        logging.getLogger(text[:100]).error(text, exc_info=Provoked(text))


def _never_awaited() -> None:
    _fail()  # type: ignore[unused-coroutine]


def _rest(port: int) -> None:
    """Hang up on the server as rudely as one can, end a thread with an exception, and then the
    operator.
    """
    for request in (b"", b"GET /metrics HTTP/1.1\r\n\r\n", b"\x00\xff" * 20_000):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request)
    ended = threading.Thread(target=_raise, args=["in a thread"])
    ended.start()
    ended.join()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    logging.getLogger(ENDS).addHandler(Provoker())
    code = main(
        [
            f"--kubeconfig={sys.argv[1]}",
            "--port=0",
            "--health-port=0",
            "--no-leader-elect",
            "--log-level=DEBUG",
        ]
    )
    _raise(f"after the end with {code}")
