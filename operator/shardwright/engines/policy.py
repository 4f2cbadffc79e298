"""Which engine arguments a user may set, and why not the others: every option is of one class.

An option that is on no list is refused: a new engine version cannot smuggle one in. The
administrator of the operator can admit dangerous options and those that nobody has counted. He can
never admit one that contradicts the plan, or replaces something that the operator relies on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of an engine by class, named with dashes.

    ``missing`` are options that fields of the spec turn into elsewhere and that this engine cannot
    be told, each with why. ``counted`` are options that a user may set because the planner counts
    with them, each with the part of the plan that it settles. ``uncounted`` are those that an
    administrator may admit although nobody has counted them, each with the part of a plan that it
    may change. ``harmless`` are the values of dangerous options that everybody may set.
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
        """Return the options that an administrator may admit, and why they need it."""
        return {
            **self.dangerous,
            **{
                name: f"may change {what}, which no plan counts"
                for name, what in self.uncounted.items()
            },
        }


UNLISTED: Final = "could change the memory or the limits that the plan was computed with"
"""Why an option that is on no list is refused."""
