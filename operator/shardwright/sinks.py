r"""How is foreign text made harmless for its reader? By one function for each place into which it
goes.

Characters that only steer (ESC and other controls, line ends, direction of text, zero width, halves
of surrogate pairs) are shown as their escape, ``\x1b``; a text too long for its place is cut, and
ends in an ellipsis. JSON and YAML documents have escapes of their own.
"""

import json
from bisect import bisect_right
from itertools import accumulate
from typing import Final

TERMINAL_MAX_LENGTH: Final = 4096
"""Unit: characters of one line. Basis: assumed; no sentence of ours has 1,000 beside what it
quotes.
"""

LOG_MAX_BYTES: Final = 6144
"""Unit: bytes of ASCII JSON, of a message or of the last part of a traceback.

Basis: container runtimes split a line of 16 KiB; one has both of them, and at most seven fields.
"""

LOG_FIELD_MAX_BYTES: Final = 512
"""Unit: bytes of ASCII JSON, of any other field. Basis: as above; namespace and name have up to
317.
"""

EVENT_MAX_BYTES: Final = 1024
"""Unit: bytes of UTF-8. Source: Kubernetes, pkg/apis/core/validation, NoteLengthLimit."""

METRIC_MAX_LENGTH: Final = 256
"""Unit: characters of the value of a label. Basis: names of Kubernetes have up to 253."""


def in_terminal(text: str) -> str:
    r"""Return one line for a terminal.

    >>> in_terminal("\x1b]0;owned\x07 \u202egpj.exe\n")
    '\\x1b]0;owned\\x07 \\u202egpj.exe\\n'
    """
    return _cut(visible(text), TERMINAL_MAX_LENGTH)


def in_log(text: str) -> str:
    """Return a message for the log; JSON puts it in quotes."""
    return _cut_as_json(visible(text), LOG_MAX_BYTES)


def in_log_field(text: str) -> str:
    """Return a value beside the log's message."""
    return _cut_as_json(visible(text), LOG_FIELD_MAX_BYTES)


def in_traceback(text: str) -> str:
    """Return a traceback for the log; a long one keeps its last lines, which name the error."""
    # Reversed, so that the start is cut; the position of a character does not change its bytes.
    return _cut_as_json(in_lines(text)[::-1], LOG_MAX_BYTES)[::-1]


def in_event(text: str) -> str:
    """Return the note of an event, whose length the API server counts in bytes."""
    shown = visible(text).encode()
    if len(shown) <= EVENT_MAX_BYTES:
        return shown.decode()
    end = "…".encode()
    return (
        # A character that the cut has split is left out.
        shown[: EVENT_MAX_BYTES - len(end)].decode(errors="ignore").encode() + end
    ).decode()


def in_status(text: str, longest: int) -> str:
    """Return a sentence for a field of the status, of at most ``longest`` characters."""
    return _cut(visible(text), longest)


def in_status_lines(text: str, longest: int) -> str:
    """Return the end of a program's output for a field of at most ``longest`` characters."""
    return _end(in_lines(text), longest)


def in_metric(text: str) -> str:
    """Return the value of a metric's label; the text format of Prometheus puts it in quotes."""
    return _cut(visible(text), METRIC_MAX_LENGTH)


def in_page(text: str) -> str:
    r"""Return text for a page of HTML; its template escapes the markup.

    >>> in_page("a\u202eb")
    'a\\u202eb'
    """
    return _cut(visible(text), TERMINAL_MAX_LENGTH)


def in_script(value: object) -> str:
    r"""Return JSON for a script element of HTML: ASCII, and nothing that could end the element.

    >>> in_script({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def in_lines(text: str) -> str:
    """Return text of several lines, each harmless; its line ends are ours."""
    return text if _is_harmless(text) else "\n".join(map(visible, text.split("\n")))


def visible(text: str) -> str:
    r"""Return text with an escape in place of every character that shows nothing by itself.

    >>> visible("a\tb\x00c\u200bd\ud800e\xe9")
    'a\\tb\\x00c\\u200bd\\ud800eé'
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def _is_harmless(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _cut_as_json(text: str, max_bytes: int) -> str:
    # ASCII JSON takes up to twelve bytes for a character.
    if _json_bytes(text) <= max_bytes:
        return text
    # No character takes less than a byte, so characters after the limit cannot fit.
    ends = list(accumulate(_json_bytes(sign) for sign in text[:max_bytes]))
    return f"{text[: bisect_right(ends, max_bytes - _json_bytes('…'))]}…"


def _json_bytes(text: str) -> int:
    return len(json.dumps(text)) - len('""')


def _end(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"…{text[1 - longest :]}"
