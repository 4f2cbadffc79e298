"""A rule between fields, as the API server (CEL) and the CLI and the operator (a predicate) hold
it.

It looks at the fields of one object alone: CEL sees no more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on the objects at ``path`` (``[]``: on every item of a list).

    ``field`` is the field under it that the user would change, as the API server's ``fieldPath``
    names it. ``figures`` says the same of the objects at hand in their numbers, which CEL cannot.
    """

    code: str
    path: str
    field: str
    cel: str
    message: str
    holds: Callable[[Any], bool]
    figures: Callable[[Any], str] | None = None
