"""How fast a namespace may have something done again and again.

What is not let through yet is not lost: who asks is told when to come back.
"""

from typing import Final

CHANGES_PER_SECOND: Final = 5.0
CHANGES_AT_ONCE: Final = 20
"""How many resources of a namespace are looked at for changes that their users make, after so many
at once. Basis: assumed; each change of a model that runs is four to five requests of ours
(measured, ``python -m benchmarks.neighbours``) and at most a restart of its groups; more of them
than turns to restart only say again and again that they wait.
"""


class Pace:
    """When what namespaces ask for may be done: ``at_once`` of each, and ``per_second`` from then
    on, in a leaky bucket each.
    """

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._levels: dict[str, float] = {}
        self._at = 0.0

    def next(self, namespace: str, now: float) -> float:
        """Return when one more may be done, which counts from then on."""
        leaked, self._at = self._per_second * (now - self._at), now
        self._levels = {
            other: level - leaked
            for other, level in self._levels.items()
            if level > leaked
        }
        level = self._levels[namespace] = self._levels.get(namespace, 0.0) + 1
        return now + max(0.0, level - self._at_once) / self._per_second
