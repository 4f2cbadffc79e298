"""A ShardedModel made from another object's fields, with the fields that have no place in it.

What the resource's own contract refuses is left out with its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shardwright.api.group_version import API_VERSION, KIND
from shardwright.api.resource import parse_manifest
from shardwright.cli.imports.source import ForeignObject, LeftOut, Spot
from shardwright.errors import InputError, Problem

Content = Mapping[str, Any]

ORDER: Final = (
    "model",
    "engine",
    "workload",
    "replicas",
    "routing",
    "scaling",
    "parallelism",
    "placement",
    "pod",
    "rollout",
)
"""The order of the spec's fields: what it is comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A ShardedModel made from another object, and the parts left out; ``read`` are the objects
    beside it that were read with it.
    """

    source: str
    manifest: dict[str, Any]
    left_out: tuple[LeftOut, ...]
    read: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Draft:
    """Collects fields of the spec; without ``pins`` the planner chooses the degrees.

    ``sources`` says by field where its value stood, ``read`` which objects beside it were read,
    ``unknown`` why the model that the object names is not known.
    """

    name: str
    namespace: str | None
    document: ForeignObject
    pins: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    degrees: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    unknown: Problem | None = None

    def put(self, path: str, value: Any, source: Spot | str = "") -> None:
        """Set a field of the spec, such as ``model.id``, to what stood at ``source``; another value
        that it has is left out.
        """
        where = source.path if isinstance(source, Spot) else source
        before, former = self.get(path), self.sources.get(path, "")
        if former and before != value:
            self.leave(former, f"{before!s:.80}: spec.{path} is {value!s:.40}")
            former = ""
        self.sources[path] = ", ".join(dict.fromkeys(filter(None, (former, where))))
        *parents, last = path.split(".")
        place = self.spec
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value

    def add(self, path: str, more: Mapping[str, Any] | Sequence[Any], source: Spot) -> None:
        """Add entries to an object or a list of the spec; of an object another value that an entry
        has is left out.
        """
        before, former = self.get(path) or {}, self.sources.pop(path, "")
        if isinstance(more, Mapping):
            for key, value in more.items():
                if before.get(key, value) != value:
                    self.leave(former, f"{key} {before[key]!s:.80}: spec.{path} has {value!s:.40}")
            more = {**before, **more}
        else:
            more = [*before, *more]
        self.put(path, more, ", ".join(filter(None, (former, source.path))))

    def get(self, path: str) -> Any:
        """Return a field of the spec, None if it is not set."""
        place: Any = self.spec
        for name in path.split("."):
            place = place.get(name) if isinstance(place, Mapping) else None
        return place

    def carry(self, field_: str, part: Spot) -> None:
        """Carry a text over as it stands, if it is one."""
        if text := part.text():
            self.put(field_, text, part)

    def carry_number(self, field_: str, part: Spot) -> None:
        """Carry a whole number over, if it is one."""
        number = part.whole()
        if number is not None:
            self.put(field_, number, part)

    def carry_degree(self, name: str, part: Spot) -> None:
        """Carry a degree over, if it is a whole number."""
        degree = part.whole()
        if degree is not None:
            self.put_degree(name, degree, part.path)

    def put_degree(self, name: str, degree: int, where: str) -> None:
        """Note a degree; of several that differ the first one stays, which is the engine's own."""
        if self.degrees.setdefault(name, degree) != degree:
            self.leave(where, f"{degree}: the degree {name} is {self.degrees[name]}")

    def leave(self, path: str, why: str) -> None:
        """Note that something that is no field has no place here."""
        self.document.left_out.append(LeftOut(path=path, why=why))

    def finished(self, source: str) -> Imported:
        """Return the finished import, a valid ShardedModel.

        Raises:
            InputError: it is none, whatever is left out.
        """
        self._settle_degrees()
        while problems := _problems_of(self._manifest()):
            refused = [self._refused(problem) for problem in problems]
            if not all(refused):
                raise InputError(problems)
            for path, problem in dict(zip(refused, problems, strict=True)).items():
                self._drop(path, problem)
        left_out = tuple(dict.fromkeys(self.document.left_out))
        return Imported(
            source=source, manifest=self._manifest(), left_out=left_out, read=frozenset(self.read)
        )

    def _settle_degrees(self) -> None:
        degrees = {name: value for name, value in self.degrees.items() if value > 1}
        if degrees and self.pins:
            self.put("parallelism", degrees)
        elif degrees:
            said = ", ".join(f"{name} {value}" for name, value in degrees.items())
            self.leave("parallelism", f"{said}: the planner chooses the degrees; --pin keeps these")

    def _manifest(self) -> dict[str, Any]:
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {})}
        spec = {name: self.spec[name] for name in ORDER if self.spec.get(name) not in (None, {})}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}

    def _refused(self, problem: Problem) -> str:
        """Return the field that a problem is about, empty if it is none that can be left out."""
        about = problem.path.removeprefix("spec.")
        fields = (
            path
            for path in self.sources
            if path not in {"model.id", "parallelism"}
            and (about == path or about.startswith((f"{path}.", f"{path}[")))
        )
        return max(fields, key=len, default="")

    def _drop(self, path: str, problem: Problem) -> None:
        *parents, last = path.split(".")
        place = self.spec
        for name in parents:
            place = place[name]
        value = place.pop(last)
        if parents and not place:
            self._prune(parents)
        where = self.sources.pop(path) or f"spec.{path}"
        self.leave(where, f"{value!r:.80}: {problem.sentence()}")

    def _prune(self, path: list[str]) -> None:
        while path and self.get(".".join(path)) == {}:
            *path, last = path
            (self.get(".".join(path)) if path else self.spec).pop(last)


def _problems_of(manifest: dict[str, Any]) -> tuple[Problem, ...]:
    try:
        parse_manifest(manifest)
    except InputError as error:
        return tuple(error.problems)
    return ()
