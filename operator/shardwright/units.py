"""How are units converted and formatted? Every number in the core is in bytes, seconds, bytes per
second or FLOP per second, and says so in its name; GiB and milliseconds are for people and the
wire. Nothing is rounded that is computed with.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
MEGA: Final = 10**6
GIGA: Final = 10**9
TERA: Final = 10**12


def format_bytes(count: float) -> str:
    """Return bytes as a person reads GPU memory.

    >>> format_bytes(85_899_345_920)
    '80.0 GiB'
    >>> format_bytes(3_145_728)
    '3.0 MiB'
    """
    if abs(count) >= GIB / 10:
        return f"{count / GIB:,.1f} GiB"
    return f"{count / MIB:,.1f} MiB"


def to_milliseconds(seconds: float) -> int:
    """Return whole milliseconds, for the wire.

    >>> to_milliseconds(0.0416)
    42
    """
    return round(seconds * 1000)


def to_microseconds(seconds: float) -> int:
    """Return whole microseconds, for the wire: of a token's time milliseconds say too little.

    >>> to_microseconds(0.0085), to_microseconds(0.0091)
    (8500, 9100)
    """
    return round(seconds * MEGA)


def format_plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> format_plural(1, "node"), format_plural(1200, "node"), format_plural(2, "box")
    ('1 node', '1,200 nodes', '2 boxes')
    """
    plural = f"{noun}es" if noun.endswith(("x", "s")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
