"""A rule between fields of one object, as CEL for the API server and as a predicate for us."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on the objects at ``path`` (``[]``: on every item of a list).

    ``field`` is the field under it for the user to change, as in the API server's ``fieldPath``.
    ``figures`` says the rule in the numbers of the object at hand, which CEL cannot.
    """

    code: str
    path: str
    field: str
    cel: str
    message: str
    holds: Callable[[Any], bool]
    figures: Callable[[Any], str] | None = None
