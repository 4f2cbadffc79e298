"""A ShardedModel made from another object's fields, with the fields that have no place in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardwright.api.group_version import API_VERSION, KIND

Content = Mapping[str, Any]

ORDER: Final = ("model", "engine", "workload", "replicas", "parallelism", "placement", "pod")
"""The order of the spec's fields: what it is comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A field that was not carried over, with the reason or its substitute."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A ShardedModel made from another object, and the parts left out."""

    source: str
    manifest: dict[str, Any]
    left_out: tuple[LeftOut, ...]


@dataclass(kw_only=True)
class Draft:
    """Collects fields of the spec; without ``pins`` the planner chooses the degrees."""

    name: str
    namespace: str | None
    pins: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    degrees: dict[str, int] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def put(self, path: str, value: Any) -> None:
        """Set a field of the spec, such as ``model.id``."""
        *parents, last = path.split(".")
        place = self.spec
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value

    def get(self, path: str) -> Any:
        """Return a field of the spec, None if it is not set."""
        place: Any = self.spec
        for name in path.split("."):
            place = place.get(name) if isinstance(place, Mapping) else None
        return place

    def leave(self, path: str, why: str) -> None:
        """Note that a field has no place here."""
        self.left_out.append(LeftOut(path=path, why=why))

    def finished(self, source: str) -> Imported:
        """Return the finished import."""
        degrees = {name: value for name, value in self.degrees.items() if value > 1}
        if degrees and self.pins:
            self.spec["parallelism"] = degrees
        elif degrees:
            said = ", ".join(f"{name} {value}" for name, value in degrees.items())
            self.leave("parallelism", f"{said}: the planner chooses the degrees; --pin keeps these")
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {})}
        spec = {name: self.spec[name] for name in ORDER if name in self.spec}
        manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        return Imported(
            source=source, manifest=manifest, left_out=tuple(dict.fromkeys(self.left_out))
        )
