"""Rules between a spec and the one before it: the API server alone sees both, and checks them on every update (CEL)."""

from dataclasses import dataclass
from typing import Final

_CACHE: Final = "model.weights.huggingFace.cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What an update must not change at ``path``, which every resource has; ``field`` is the one under it that it is about."""

    code: str
    path: str
    field: str
    cel: str
    message: str


def _kept(field: str) -> str:
    """Return that a text field has not changed, come or gone, whichever of its parents are there on either side."""
    return f"{_value('self', field)} == {_value('oldSelf', field)}"


def _value(side: str, field: str) -> str:
    parts = field.split(".")
    there = " && ".join(f"has({side}.{'.'.join(parts[: length + 1])})" for length in range(1, len(parts)))
    return f"({there} ? {side}.{field} : '')"


TRANSITIONS: Final = (
    Transition(
        code="CacheClaimsFixed",
        path="spec",
        field=f".{_CACHE}",
        cel=f"oldSelf.replicas == 0 || oldSelf.mode == 'PlanOnly' || "
        f"({_kept(f'{_CACHE}.storage')} && {_kept(f'{_CACHE}.storageClassName')})",
        message="cache.storage and cache.storageClassName must stay as they are while groups exist, which keep the claims that "
        "they were made with; set replicas to 0 first, then change them, then scale up again",
    ),
)
"""All of them; the order is the order of the messages."""
