"""What a check of the doctor comes to: values that know no cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import Final, TypeVar

T = TypeVar("T")

NAMES_SHOWN: Final = 5
"""Objects that a sentence names; the rest are counted."""


class Result(StrEnum):
    """How a check ended."""

    FINE = "Fine"
    NOTED = "Noted"  #: something to know, which may be on purpose
    WRONG = "Wrong"
    UNREAD = "Unread"  #: the user may not read what it needs
    SKIPPED = "Skipped"  #: it was not asked for


class Enforcement(StrEnum):
    """Whether a NetworkPolicy stopped a pod; unclear if the pod never got through, or ended."""

    ENFORCED = "Enforced"
    IGNORED = "Ignored"
    UNCLEAR = "Unclear"


class NotMadeError(Exception):
    """A check could not be made, or was not asked for."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__(result)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, or worth knowing, and the command that shows more or fixes it.

    No command deletes anything.
    """

    reason: str
    message: str
    command: str
    objects: tuple[str, ...] = ()
    namespace: str = ""
    wrong: bool = True


def names(objects: Sequence[str]) -> str:
    """Return the first objects by name, and the number of others."""
    more = len(objects) - NAMES_SHOWN
    return ", ".join(objects[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def read(part: T | None) -> T:
    """Return a part of what was read.

    Raises:
        NotMadeError: it may not be read.
    """
    if part is None:
        raise NotMadeError(Result.UNREAD)
    return part


def kubectl(words: str, name: str = "", namespace: str = "") -> str:
    """Return a command of kubectl about an object, or about all without a name."""
    named = quote(name) if name else ""
    return f"kubectl {f'-n {quote(namespace)} ' if namespace else ''}{words}{named}"
