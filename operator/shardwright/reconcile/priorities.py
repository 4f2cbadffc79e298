"""Which PriorityClasses are there, and which priority has a model?"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardwright.errors import Problem

PATH = "spec.pod.priorityClassName"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """The relevant part of a PriorityClass: greater values go first; ``is_default``: it applies to
    pods that name none.
    """

    value: int
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """The PriorityClasses of the cluster by name."""

    classes: Mapping[str, PriorityClass] = field(default_factory=dict)

    def changed(self, changes: Mapping[str, PriorityClass | None]) -> "Priorities":
        """Return the priorities after changes by name; None for a deleted class."""
        whole = {**self.classes, **changes}
        return replace(
            self, classes={name: found for name, found in whole.items() if found is not None}
        )

    def value_of(self, name: str | None) -> int:
        """Return the priority of pods that name this class, or none; 0 for a missing class.

        Of several default classes the one with the least value counts. Source: the admission plugin
        Priority of Kubernetes.
        """
        if name is not None:
            # A missing class is a problem of its own (problem_of); the place in the queue must not
            # depend on it.
            return self.classes[name].value if name in self.classes else 0
        return min((item.value for item in self.classes.values() if item.is_default), default=0)

    @property
    def default(self) -> str:
        """Return the class of pods that name none, or ""."""
        found = ((item.value, name) for name, item in self.classes.items() if item.is_default)
        return min(found, default=(0, ""))[1]

    def problem_of(self, name: str | None) -> Problem | None:
        """Return why pods that name this class cannot be created, or None if they can."""
        if name is None or name in self.classes:
            return None
        return Problem(
            code="PriorityClassMissing",
            path=PATH,
            what=f"PriorityClass {name}",
            limit="does not exist in this cluster",
            gap="the API server refuses its pods",
            remedy="create it, name an existing one "
            f"(kubectl get priorityclass), or leave {PATH} out",
        )
