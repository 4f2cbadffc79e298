"""The list of plans as one HTML page, with a link to each; as little is fetched by it as by a
plan's own page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.pages.page import rendered


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A ShardedModel as a row; ``plan`` is its plan in one line, empty if it has none."""

    namespace: str
    name: str
    model: str
    ready: str
    plan: str


def plans_page(listed: Sequence[Listed], *, unasked: int, root: str) -> str:
    """Return a page of ASCII that lists models; ``unasked`` namespaces are left out, ``root`` is
    the path of the list.
    """
    return rendered("plans.html", {"listed": listed, "unasked": unasked, "root": root})
