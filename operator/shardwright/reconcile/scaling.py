"""Which groups go if fewer are wanted? Those that cost least to end."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from shardwright.reconcile.relocation import Departure
from shardwright.reconcile.states import GroupState, Situation
from shardwright.rendering.names import generation_of

_BROKEN: Final = frozenset({Situation.BACKING_OFF, Situation.STOPPED, Situation.UNREADY})
"""Situations of a group that does not serve and was to."""


class Worth(IntEnum):
    """The cost of ending a group, the least first."""

    BROKEN = 0  #: it has failed, or cannot go on where it is
    NOT_READY = 1  #: it is starting, or has not been made
    SERVES = 2  #: it is ready, or its former generation is


def worst_first(
    roots: Sequence[str],
    numbers: Sequence[int],
    standing: Iterable[GroupState],
    leaving: Iterable[Departure],
) -> tuple[int, ...]:
    """Return group numbers in the order to drop: broken, not ready, then the highest.

    ``roots`` are the groups' names without generation, in the order of ``numbers``. ``standing``
    are existing groups of all generations. ``leaving`` are the groups, by index, that cannot go on
    where they are.
    """
    states: dict[str, list[GroupState]] = {}
    for state in standing:
        states.setdefault(generation_of(state.name)[0], []).append(state)
    moves = {item.group for item in leaving}
    worth = [
        # The highest number goes first, as with a StatefulSet; monitors that know groups by name
        # find the others again (ADR 3).
        (_worth(states.get(root, ()), moves=index in moves), -numbers[index])
        for index, root in enumerate(roots)
    ]
    return tuple(-number for _, number in sorted(worth))


def _worth(states: Sequence[GroupState], *, moves: bool) -> Worth:
    # Any generation: while the next one starts, the former one serves.
    if any(state.ready for state in states):
        return Worth.SERVES
    broken = moves or any(state.failing or state.situation in _BROKEN for state in states)
    return Worth.BROKEN if broken else Worth.NOT_READY
