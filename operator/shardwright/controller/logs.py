"""Logs as JSON lines. What is logged are names, reasons and counts, never specs, environments or contents."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final

CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
FIELDS: Final = ("key", "result", "reason", "seconds", "writes", "fields")


class JsonLines(logging.Formatter):
    """One JSON object per record; control characters are blanked, so that no message can forge another."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": CONTROL_CHARACTERS.sub(" ", record.getMessage()),
        }
        line |= {field: getattr(record, field) for field in FIELDS if hasattr(record, field)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str) -> None:
    """Send our records of ``level`` and above, and warnings of the libraries, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("shardwright").setLevel(level)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # warns that it leaves signals to us
