"""Logs as JSON lines, whoever writes them: names, reasons and counts, never specs or contents."""

import json
import logging
import math
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from types import TracebackType
from typing import Final

from shardwright.sinks import LOG_FIELD_MAX_BYTES, in_log, in_log_field, in_traceback

FIELDS: Final = ("key", "result", "reason", "seconds", "writes", "fields")

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
