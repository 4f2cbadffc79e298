"""What does a write follow from: a wish, the cluster, somebody who undid ours, a failure, or a wait
that ended? One value, from which conditions, events and the log say why.

Who has changed a field that we rendered? By the owners that the API server keeps of each field.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from shardwright.rendering.bundle import CONTENT_HASH, KubernetesObject

FIELDS_NAMED: Final = 5
"""How many fields a cause names. Basis: assumed; the first ones tell what it was."""


class Origin(StrEnum):
    """The kinds of cause."""

    WISH = "Wish"  #: somebody wants the model otherwise
    WORLD = "World"  #: nodes, pods, quotas or this release are others
    UNDONE = "Undone"  #: somebody else has changed what we wrote last
    FAILURE = "Failure"  #: a rank has failed
    WAIT = "Wait"  #: what was waited for has come, or the time is over


@dataclass(frozen=True, slots=True)
class WriteCause:
    """What a write follows from: ``what`` is the field, node, pod or rank, ``by`` who undid ours,
    as the API server names them (empty: unknown).
    """

    origin: Origin
    what: str
    by: str = ""

    def __str__(self) -> str:
        """Return the cause in one line, for the log."""
        return f"{self.origin}: {self.what}" + (f", by {self.by}" if self.by else "")


WISHED: Final = WriteCause(Origin.WISH, "spec")
"""The cause of what exists because the model is asked for."""

LEFT_BEHIND: Final = WriteCause(Origin.WORLD, "an earlier model of this name has left it")
"""The cause of taking an object back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """An object that somebody keeps undoing: ``fields`` of it (none: they delete it), ``by`` whom
    (empty: unknown), and the hash of what was ``rendered``, which is not written again for now.
    """

    fields: tuple[str, ...]
    by: str = ""
    rendered: str = ""


def fields_named(fields: Iterable[str]) -> str:
    """Return the first of these fields."""
    listed = list(fields)
    more = len(listed) - FIELDS_NAMED
    return ", ".join(listed[:FIELDS_NAMED]) + (f" and {more} more" if more > 0 else "")


def rendered_hash(content: KubernetesObject) -> str:
    """Return the hash of what an object was rendered from, empty if it does not say so."""
    return str((content["metadata"].get("annotations") or {}).get(CONTENT_HASH) or "")


def is_undone(rendered: KubernetesObject, live: KubernetesObject, fields: Iterable[str]) -> bool:
    """Return whether somebody else has changed these fields: what we rendered last is what we
    render now, and the object holds something else.
    """
    # By the hash, not by the write: a budget that follows its pods is written just as often, and
    # nobody has touched it.
    unchanged = rendered_hash(live) in ("", rendered_hash(rendered))
    # What is remembered of a group is written by us and not rendered.
    return unchanged and any(not field.startswith("metadata.annotations.") for field in fields)


def changed_by(live: KubernetesObject, fields: Iterable[str], ours: str) -> str:
    """Return who last wrote one of these fields of an object but ``ours``, by its managedFields, or
    an empty text. A field that was only taken away has no owner.
    """
    wanted = tuple(fields)
    found = [
        (str(entry.get("time") or ""), str(entry.get("manager") or ""))
        for entry in live["metadata"].get("managedFields") or ()
        if entry.get("manager") != ours and not entry.get("subresource")
        if any(_owns(entry.get("fieldsV1") or {}, field) for field in wanted)
    ]
    return max(found, default=("", ""))[1]


def _owns(owned: Mapping[str, Any], path: str) -> bool:
    """Return whether a set of fields, nested as in ``fieldsV1``, has this one or a part of it."""
    if not path:
        return True
    if path.startswith("["):
        index, _, rest = path[1:].partition("]")
        return any(_owns(inner, rest.removeprefix(".")) for inner in _items(owned, index))
    return any(
        not inner or _owns(inner, path[len(name) :].removeprefix("."))
        for key, inner in owned.items()
        # The name of an annotation has dots, too, so the path is not split at them.
        if (name := key.removeprefix("f:")) != key
        if path == name or path.startswith((f"{name}.", f"{name}["))
    )


def _items(owned: Mapping[str, Any], index: str) -> Iterator[Mapping[str, Any]]:
    # Our paths count in lists that we own as a whole, and have the key in all others.
    for key, inner in owned.items():
        kind, _, named = key.partition(":")
        if kind in ("k", "v") and (index.isdecimal() or index in _values(named)):
            yield inner


def _values(named: str) -> tuple[str, ...]:
    try:
        found = json.loads(named)
    except ValueError:
        return ()
    return tuple(map(str, found.values())) if isinstance(found, dict) else (str(found),)
