"""Logs as JSON lines, whoever writes them: names, reasons and counts, never specs or contents.

Python's settings for a process with many long-lived objects and several threads.
"""

import gc
import json
import logging
import math
import sys
import threading
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import accumulate
from types import TracebackType
from typing import Final

from shardwright.sinks import LOG_FIELD_MAX_BYTES, in_log, in_log_field, in_traceback

FIELDS: Final = ("key", "cause", "reason", "seconds", "fields")

LOOK: Final[ContextVar[str]] = ContextVar("look", default="")
"""The id of the look at a model that is under way, empty outside of one; its threads inherit it."""

log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """One JSON object per record: no content can forge another record or lose its own.

    A line stays below 16 KiB, at which container runtimes split it.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": in_log_field(record.name),
            "message": in_log(_message(record)),
        }
        line |= {
            field: _plain(getattr(record, field)) for field in FIELDS if hasattr(record, field)
        }
        if look := LOOK.get():
            line["look"] = look
        if record.exc_info:
            line["exception"] = in_traceback(self.formatException(record.exc_info))
        return json.dumps(line)


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]  # generic for the type checker only
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # its name in the library
        """Log that a record is lost; Python would print a traceback instead."""
        lost = logging.LogRecord(
            record.name, logging.ERROR, "", 0, "a line of the log could not be written", (), None
        )
        with suppress(OSError, ValueError):  # nobody reads it any more
            self.stream.write(self.format(lost) + self.terminator)


def configure(level: str) -> None:
    """Log our records from ``level`` on, libraries' warnings and uncaught exceptions to stderr."""
    handler = _Lines(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("shardwright").setLevel(level)
    # It warns that it leaves signals to us.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda ignored: _uncaught(
        ignored.exc_type, ignored.exc_value, ignored.exc_traceback
    )
    threading.excepthook = lambda ended: _uncaught(
        ended.exc_type, ended.exc_value, ended.exc_traceback
    )


def _uncaught(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    log.critical("nobody has caught %s", kind.__name__, exc_info=(kind, error or kind(), trace))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # whatever the arguments raise
        return f"{record.msg} {record.args!r}"


def _plain(value: object) -> object:
    if (
        value is None
        or isinstance(value, bool | int)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        ends = accumulate(len(json.dumps(item)) + len(", ") for item in items)
        fit = [item for item, end in zip(items, ends, strict=True) if end <= LOG_FIELD_MAX_BYTES]
        return fit if len(fit) == len(items) else [*fit, "…"]
    return in_log_field(str(value))


MADE_BETWEEN_SEARCHES: Final = (20_000, 20, 50)
"""Containers made, less those freed, before Python collects the youngest generation; how many
collections of it before one of the next, and of all. Python's own are 700, 10 and 10.
"""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread keeps the interpreter while others wait for it; Python's own is 0.005."""


def keep_answering() -> None:
    """Keep the event loop responsive: no full garbage collections, no thread that holds it up.

    Basis: ``python -m benchmarks.neighbours --phases quiet flooding`` (40 crashes, two cores,
    2026-11-25). With Python's own settings 13 full collections took 0.14 s each, all collections
    2.3 s of 38 s of CPU, and the slowest repair beside the flood took 1.1 s. With 50,000 containers
    and this pause it took 0.77 s, and the collections 0.15 s of 34 s, for 13 MiB more of memory, so
    fewer containers are allowed here.
    """
    gc.set_threshold(*MADE_BETWEEN_SEARCHES)
    sys.setswitchinterval(SWITCH_SECONDS)
