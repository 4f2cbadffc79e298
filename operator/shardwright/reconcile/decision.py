"""What to write next: creations, applications, deletions; values that ``cluster`` carries out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create an object; one of the same name that appears first is left alone."""

    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKey:
    """Create a Secret with a key that is made for it; where there is one of its name, that is the key."""

    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Apply an object's full intent by force, to exactly the object with this uid, which is ours."""

    content: Mapping[str, Any]
    uid: str
    because: tuple[str, ...]  # paths of the fields that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly the object with this uid; its dependents follow in the background."""

    kind: str
    namespace: str
    name: str
    uid: str
    grace_seconds: int | None = None


Write = Create | CreateKey | Apply | Delete
