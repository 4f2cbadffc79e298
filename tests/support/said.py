"""What a status says, read as those read it who wait for it: a condition that is absent is not True."""

from collections.abc import Mapping
from typing import Any, Final

ABSENT: Final = {"status": "False", "reason": "Idle", "message": ""}


def condition_in(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of a status; one that is not there says that there is nothing to say."""
    found = [dict(item) for item in status["conditions"] if item["type"] == kind]
    assert len(found) <= 1, f"{kind} is said {len(found)} times"
    return found[0] if found else {"type": kind, **ABSENT}
