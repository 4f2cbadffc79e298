"""What a reader has taken of a document: every leaf that nobody took is left out, and listed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NOTHING: Final = (None, "")
"""Values that say the same as a field that is not there."""

UNSAID: Final = "no field of a ShardedModel says it"

_WRITTEN: Final = (
    ("status",),
    ("metadata", "creationTimestamp"),
    ("metadata", "generation"),
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
    ("metadata", "selfLink"),
    ("metadata", "uid"),
    ("metadata", "annotations", "deployment.kubernetes.io/revision"),
    ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
)
"""Fields that Kubernetes and kubectl write. Source: Kubernetes API, ObjectMeta."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "progressDeadlineSeconds": 600,
    "restartPolicy": "Always",
    "revisionHistoryLimit": 10,
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
"""Values that the API server fills in for fields that nobody wrote. Source: Kubernetes API."""

_KUBERNETES: Final = "Kubernetes writes it itself, or it is the default"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was not carried over, one path or several with a comma between, and why."""

    path: str
    why: str


@dataclass(kw_only=True)
class ForeignObject:
    """A document, the places in it that were taken, and what was left out so far.

    ``name`` stands before its paths, empty for the imported object itself.
    """

    value: Any
    name: str = ""
    taken: set[tuple[str | int, ...]] = field(default_factory=set)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def root(self) -> Spot:
        """Return the whole document."""
        return Spot(document=self, keys=(), value=self.value)

    def leave_the_rest(self, reasons: Mapping[str, str]) -> None:
        """Leave out every leaf that nobody took, with the reason of the innermost field that has
        one.

        What lies side by side and was never looked into is one line.
        """
        opened = {keys[:length] for keys in self.taken for length in range(len(keys))}
        for part in list(_untaken(self.root, opened, reasons)):
            keys = (key for key in reversed(part.keys) if key in reasons)
            part.leave(next((reasons[str(key)] for key in keys), UNSAID))

    def leave_kubernetes(self) -> None:
        """Leave out what Kubernetes writes, and the defaults that it fills in, in one line."""
        written = [self.root.at(*keys) for keys in _WRITTEN]
        defaults = [part for part in self._leaves(self.root) if part.is_default]
        leave_together([part for part in (*written, *defaults) if part.is_open], _KUBERNETES)

    def _leaves(self, part: Spot) -> Iterator[Spot]:
        children = part.each()
        if not children:
            yield part
        for child in children:
            yield from self._leaves(child)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place in a document, and what stands there; None if nothing does."""

    document: ForeignObject
    keys: tuple[str | int, ...]
    value: Any

    def at(self, *keys: str) -> Spot:
        """Return the place of a field, or of a field of a field."""
        value = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return Spot(document=self.document, keys=(*self.keys, *keys), value=value)

    def each(self) -> tuple[Spot, ...]:
        """Return the places of the items of a list, or of an object's fields."""
        entries = (
            self.value.items()
            if isinstance(self.value, Mapping)
            else enumerate(self.value)
            if isinstance(self.value, list)
            else ()
        )
        return tuple(
            Spot(document=self.document, keys=(*self.keys, key), value=value)
            for key, value in entries
        )

    @property
    def last(self) -> str:
        """Return the field's own name."""
        return str(self.keys[-1])

    @property
    def is_there(self) -> bool:
        """Return whether anything stands there; an empty text says nothing."""
        return self.value not in _NOTHING

    @property
    def is_open(self) -> bool:
        """Return whether something stands there that nobody took."""
        taken = self.document.taken
        return self.is_there and not any(
            self.keys[:length] in taken for length in range(len(self.keys) + 1)
        )

    @property
    def is_default(self) -> bool:
        """Return whether it is the value that the API server fills in."""
        return bool(self.keys) and _DEFAULTS.get(self.last, _NOTHING) == self.value

    @property
    def string(self) -> str:
        """Return the text that stands there; anything else gives an empty one."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def words(self) -> list[str]:
        """Return the items of a list as texts; anything else gives none."""
        return [str(word) for word in self.value] if isinstance(self.value, list) else []

    def take(self) -> Any:
        """Return what stands there; it and all below it counts as carried over."""
        if self.is_there:
            self.document.taken.add(self.keys)
        return self.value

    def text(self) -> str:
        """Take a text; anything else is not taken, and gives an empty one."""
        if self.string:
            self.take()
        return self.string

    def whole(self) -> int | None:
        """Take a whole number; anything else is not taken, and gives None."""
        is_whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        return int(self.take()) if is_whole else None

    def leave(self, why: str) -> None:
        """Leave it out, with all below it that nobody took."""
        leave_together([self], why)

    @property
    def path(self) -> str:
        """Return where it stands, items of lists by their name if they have one.

        >>> spec = {"env": [{"name": "A", "value": 1}], "limits": {"nvidia.com/gpu": 1}}
        >>> root = ForeignObject(value=spec).root
        >>> root.at("env").each()[0].at("value").path, root.at("limits", "nvidia.com/gpu").path
        ('env[A].value', 'limits[nvidia.com/gpu]')
        """
        said, value = self.document.name, self.document.value
        for key in self.keys:
            value = value.get(key) if isinstance(value, Mapping) else _item(value, key)
            said += _step(key, value, first=not said)
        return said


def _untaken(
    part: Spot, opened: set[tuple[str | int, ...]], reasons: Mapping[str, str]
) -> Iterator[Spot]:
    if not part.is_open or not _says(part.value):
        return
    reasoned = any(key in reasons for key in part.keys[-2:])
    if part.keys in opened or not part.keys or (not reasoned and _names(part.value, reasons)):
        for child in part.each():
            yield from _untaken(child, opened, reasons)
    else:
        yield part


def _names(value: Any, reasons: Mapping[str, str]) -> bool:
    """Return whether a field with a reason of its own stands anywhere below."""
    if isinstance(value, Mapping):
        return any(key in reasons or _names(child, reasons) for key, child in value.items())
    return isinstance(value, list) and any(_names(child, reasons) for child in value)


def leave_together(parts: list[Spot], why: str) -> None:
    """Leave out what is there of several places for one reason, in one line."""
    there = [part for part in parts if part.is_there]
    if there:
        path = ", ".join(part.path for part in there)
        there[0].document.left_out.append(LeftOut(path=path, why=why))
    for part in there:
        part.take()


def _says(value: Any) -> bool:
    children = (
        list(value.values())
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list)
        else []
    )
    return any(map(_says, children)) if children else value not in _NOTHING


def _item(value: Any, key: str | int) -> Any:
    return value[key] if isinstance(value, list) and isinstance(key, int) else None


def _step(key: str | int, value: Any, *, first: bool) -> str:
    if isinstance(key, int):
        name = value.get("name") if isinstance(value, Mapping) else None
        return f"[{name if isinstance(name, str) and name else key}]"
    if not _PLAIN.fullmatch(str(key)):
        return f"[{key}]"
    return str(key) if first else f".{key}"
