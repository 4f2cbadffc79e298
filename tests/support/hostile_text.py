"""Text that means harm where it is shown: to a terminal, to whoever reads lines, and to what parses
them.
"""

from typing import Final

HOSTILE: Final = {
    "colours": "\x1b[31mred\x1b[0m",
    "window title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "one-byte CSI": "\x9b2J\x9d52;c;cm0=\x9c",
    "cursor": "ok\r\x1b[2K\x08\x08\x7f",
    "bidi": "\u202egpj.exe\u2066\u2069\u200f",
    "lines": "a\nerror[Fine]: forged\r\n\x0b\x0c\x85\u2028\u2029",
    "NUL": "a\x00b",
    "zero width": "a\u200b\u200d\u2060\ufeff\u00adb",
    "tags": "\U000e0041\U000e0042",
    "half of a pair": "\ud800x\udfff",
    "format": "%s%n%(key)s{0}{key}$(HF_TOKEN)",
    "prometheus": 'x"} 1\nshardwright_leader{a="\\',
    "markdown": "| <script>x</script> [y](javascript:1) ![z](https://e.example) `w` *v*",
    "json": '"}\n{"level": "info", "message": "forged"',
    "long": "long" * 50_000,
}


def is_harmless(text: str) -> bool:
    """Return whether text is printable, but for the ends of its lines."""
    return text.replace("\n", "").isprintable()
