"""Which engine arguments a user may set, and why not the others: every option is of one class.

An unlisted option is refused: a new engine version cannot smuggle one in. The administrator can
admit dangerous and uncounted options, but none that contradicts the plan or replaces something that
the operator relies on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of an engine by class, named with dashes.

    ``missing``: fields of the spec say these elsewhere, and this engine cannot be told, each with
    why. ``counted``: users may set them because the planner counts with them, each with the part of
    the plan that it settles. ``uncounted``: an administrator may admit them, each with the part of
    a plan that it may change. ``harmless`` are values of dangerous options that everybody may set.
    """

    allowed: frozenset[str]
    owned: Mapping[str, str]
    dangerous: Mapping[str, str]
    incompatible: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def admissible(self) -> Mapping[str, str]:
        """Return the options an administrator may admit, and why they need it."""
        return {
            **self.dangerous,
            **{
                name: f"may change {what}, which no plan counts"
                for name, what in self.uncounted.items()
            },
        }


UNLISTED: Final = "could change the memory or the limits that the plan was computed with"
"""Why an option that is on no list is refused."""
