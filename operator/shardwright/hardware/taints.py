"""What does a taint of a node say: whom the node is reserved for, or a state that a component sets
and takes away by itself?

A state is not to be tolerated: pods would start on a node without network or storage, or on one
that goes. The table is ``taints.csv``, each row with its source; settings go before it, and a key
that neither has is told by its last word.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Final, TypeVar

from shardwright.hardware.untrusted import text_or_empty

HARD_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep pods off; a PreferNoSchedule taint only makes another node the better one."""

ANY: Final = "*"
"""Ends a key of the table, or of settings, that stands for all keys that begin so."""


class TaintState(StrEnum):
    """What a taint says of its node."""

    RESERVED = "Reserved"  #: the node is for those that tolerate it
    PASSES = "Passes"  #: a component takes it away when the node is ready for pods
    ENDS = "Ends"  #: the node goes
    REPAIR = "Repair"  #: the node's GPUs are tested or repaired
    NOT_READY = "NotReady"  #: the kubelet is silent; the condition Ready says so, too
    CORDONED = "Cordoned"  #: ``spec.unschedulable`` says so, too


_Meaning = TypeVar("_Meaning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A hard or soft taint that pods meet; ``owner`` takes it away (empty: a person)."""

    key: str
    value: str
    effect: str
    state: TaintState = TaintState.RESERVED
    owner: str = ""

    @property
    def hard(self) -> bool:
        """Return whether it keeps pods off."""
        return self.effect in HARD_EFFECTS

    @property
    def shown(self) -> str:
        """Return it as kubectl writes it."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


_WORDS: Final = (
    (r"(not[-_]?ready|unready|uninitiali[sz]ed|unregistered|initiali[sz]ing)$", TaintState.PASSES),
    (r"(terminati(on|ng)|drain(ing|ed)?|disrupted|decommission(ing|ed)?)$", TaintState.ENDS),
)
"""What the last word of a key says that nobody has listed. Basis: assumed, from the listed ones."""


def read_taints(
    taints: Iterable[Mapping[str, object]], stated: Mapping[str, TaintState]
) -> tuple[Taint, ...]:
    """Return the taints of a Node in a fixed order; ``stated`` is what a person says of keys, which
    may end in :data:`ANY`.
    """
    said = tuple(sorted(stated.items()))
    named = tuple(
        (
            text_or_empty(taint.get("key")),
            text_or_empty(taint.get("effect")),
            text_or_empty(taint.get("value")),
        )
        for taint in taints
    )
    return _read(named, said)


@lru_cache(maxsize=256)
def _read(
    named: tuple[tuple[str, str, str], ...], stated: tuple[tuple[str, TaintState], ...]
) -> tuple[Taint, ...]:
    """Nodes of one kind share their taints."""
    means = {key: _meaning(key, dict(stated)) for key, _, _ in named}
    return tuple(
        Taint(key=key, effect=effect, value=value, state=means[key][0], owner=means[key][1])
        for key, effect, value in sorted(set(named))
        if key
    )


def _meaning(key: str, stated: Mapping[str, TaintState]) -> tuple[TaintState, str]:
    if (said := _named(key, stated)) is not None:
        return said, ""
    if (listed := _named(key, _listed())) is not None:
        return listed
    told = (state for word, state in _WORDS if re.search(word, key, re.IGNORECASE))
    return next(told, TaintState.RESERVED), ""


def _named(key: str, table: Mapping[str, _Meaning]) -> _Meaning | None:
    """The whole key goes before the longest beginning."""
    if key in table:
        return table[key]
    begun = (name for name in table if name.endswith(ANY) and key.startswith(name[:-1]))
    longest = max(begun, key=len, default=None)
    return None if longest is None else table[longest]


@lru_cache(maxsize=1)
def _listed() -> Mapping[str, tuple[TaintState, str]]:
    return MappingProxyType(
        {row["key"]: (TaintState(row["state"]), row["owner"]) for row in listed_taints()}
    )


def listed_taints() -> tuple[dict[str, str], ...]:
    """Return the rows of the table: ``key``, ``state``, ``owner``, ``source``."""
    text = resources.files("shardwright.hardware").joinpath("taints.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
