"""The crash matrix in memory: each act of a life as it goes, and once for each point, where it is
to end in the same state.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from shardwright.cluster.resources import EVENTS, SECRETS
from tests.crash.leaders import Pair
from tests.crash.lives import Act, fill, life
from tests.crash.points import Fate, Point, StrikingCluster
from tests.harness.api import Manifest
from tests.support.invariants import at_any_moment, at_rest, of_writes
from tests.support.memory_api import Place
from tests.support.memory_operator import MemoryOperator

_PASSING: Final = re.compile(
    r"uid-\d+"  # of whom is created
    r"|\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)"  # times
    r'|\\?"serial\\?": ?\d+'  # of a plan of record that was written twice
)
REVOKED_SECONDS: Final = 20.0
"""How long a right stays revoked: what is refused was tried several times by then. Basis: assumed.
"""

_VARYING: Final = {
    "resourceVersion",
    "generation",
    "observedGeneration",
    "creationTimestamp",
    "signature",
    "lastOutageSeconds",
} | {"shardwright.io/last-outage-seconds"}


@dataclass(frozen=True, slots=True)
class Chapter:
    """An act as it goes when nothing fails.

    ``before`` is the cluster at its begin; ``writes`` are all that were sent; ``states`` is the
    cluster before and after each; ``ends_as`` is what it comes to, ``pods_made`` all pods that were
    made until then; ``rights`` are those that it used, as "verb plural".
    """

    act: Act
    before: bytes
    writes: tuple[str, ...]
    states: tuple[tuple[bytes, bytes], ...]
    ends_as: Any
    pods_made: tuple[str, ...]
    rights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of an act that was struck; nothing is wrong where ``broken`` is empty."""

    write: str
    fate: Fate
    broken: tuple[str, ...]


async def chapters(engine: str) -> dict[str, Chapter]:
    """Return the acts of a life as they go when nothing fails."""
    found, cluster = {}, StrikingCluster()
    fill(cluster)
    for name, act in life(engine).items():
        before = cluster.saved()
        cluster.requests.clear()
        assert await _play(cluster, act, None, save=True) == [], name
        found[name] = Chapter(
            act=act,
            before=before,
            writes=tuple(cluster.tried),
            states=tuple(cluster.states),
            ends_as=shape(cluster),
            pods_made=tuple(sorted(cluster.pods_made)),
            rights=tuple(sorted({request.partition("/")[0] for request in cluster.requests})),
        )
    return found


async def struck(chapter: Chapter, plurals: Collection[str] = ()) -> list[Run]:
    """Return what came of an act at each of its points, or at those that write one of these
    plurals.

    Events are no points: what becomes of one is nothing to what follows.
    """
    points = [
        point for point in _losses(chapter) if _is_among(chapter.writes[point.number], plurals)
    ]
    runs = [Run(chapter.writes[at.number], at.fate, await _lose(chapter, at)) for at in points]
    for state, at in _moments(chapter, Fate.KILLED_BEFORE, Fate.KILLED_AFTER).items():
        if _is_among(write := chapter.writes[at.number], plurals):
            runs.append(Run(write, at.fate, await _start_again(chapter, state)))
    return runs


async def stopped(chapter: Chapter, plurals: Collection[str] = ()) -> list[Run]:
    """Return what came of an act whose leader was stopped at each of its points, or at those that
    write one of these plurals.

    Another one takes over when the Lease has run out, and the first wakes up when that one has
    begun to work.
    """
    points = _moments(chapter, Fate.STOPPED_BEFORE, Fate.STOPPED_AFTER).values()
    among = [point for point in points if _is_among(chapter.writes[point.number], plurals)]
    return [Run(chapter.writes[at.number], at.fate, await _stop(chapter, at)) for at in among]


async def forbidden(chapter: Chapter) -> list[Run]:
    """Return what came of an act where each right that it uses was revoked before it, one by one,
    and given back later.

    What is only listed is read once, when an operator starts.
    """
    rights = [right for right in chapter.rights if not right.startswith("list ")]
    return [Run(right, Fate.FORBIDDEN, await _revoke(chapter, right)) for right in rights]


def _is_among(write: str, plurals: Collection[str]) -> bool:
    return not plurals or write.partition(" ")[2].partition("/")[0] in plurals


def _losses(chapter: Chapter) -> Iterator[Point]:
    """Yield the points at which a write is lost; what is no creation may be sent twice, and nobody
    sees a difference.
    """
    for number, write in enumerate(chapter.writes):
        if EVENTS.plural not in write:
            yield Point(number, Fate.LOST_BEFORE)
            yield Point(number, Fate.LOST_AFTER)
            if write.startswith("create"):
                yield Point(number, Fate.REPEATED)


def _moments(chapter: Chapter, fate_before: Fate, fate_after: Fate) -> dict[bytes, Point]:
    """Return the states in which an operator may come to its end: after a write is before the next
    one of the same reconcile.
    """
    found: dict[bytes, Point] = {}
    for number, (write, (before, after)) in enumerate(
        zip(chapter.writes, chapter.states, strict=True)
    ):
        if EVENTS.plural not in write:
            found.setdefault(before, Point(number, fate_before))
            found.setdefault(after, Point(number, fate_after))
    return found


async def _lose(chapter: Chapter, point: Point) -> tuple[str, ...]:
    cluster = StrikingCluster()
    cluster.restore(chapter.before)
    return _judged(chapter, cluster, await _play(cluster, chapter.act, point))


async def _revoke(chapter: Chapter, right: str) -> tuple[str, ...]:
    cluster = StrikingCluster()
    cluster.restore(chapter.before)
    broken = await _play(cluster, chapter.act, None, without=right)
    return _judged(chapter, cluster, broken)


async def _stop(chapter: Chapter, point: Point) -> tuple[str, ...]:
    cluster, broken = StrikingCluster(), list[str]()
    cluster.restore(chapter.before)
    pair = Pair(cluster, lambda: broken.extend(at_any_moment(_objects(cluster))))
    await pair.start()
    await pair.first.step()
    cluster.strike(None)
    chapter.act(cluster)
    broken += await pair.rest(point)
    return _judged(chapter, cluster, _in_the_end(cluster, broken))


async def _start_again(chapter: Chapter, state: bytes) -> tuple[str, ...]:
    cluster = StrikingCluster()
    cluster.restore(state)
    return _judged(chapter, cluster, await _play(cluster, None, None))


async def _play(
    cluster: StrikingCluster,
    act: Act | None,
    point: Point | None,
    *,
    save: bool = False,
    without: str = "",
) -> list[str]:
    """Start an operator, let something happen, wait until all rests, and return the laws that were
    broken meanwhile.

    It goes ``without`` a right for ``REVOKED_SECONDS`` from then on.
    """
    broken: list[str] = []
    operator = MemoryOperator(cluster, lambda: broken.extend(at_any_moment(_objects(cluster))))
    await operator.start()
    if act:
        await operator.step()
        cluster.strike(point, save=save)
        cluster.revoked = without
        act(cluster)
    if without:
        await operator.run(REVOKED_SECONDS)
        cluster.revoked = ""
    await operator.rest()
    return _in_the_end(cluster, broken)


def _in_the_end(cluster: StrikingCluster, broken: list[str]) -> list[str]:
    return [*broken, *at_rest(_objects(cluster)), *of_writes(cluster.tried)]


def _judged(chapter: Chapter, cluster: StrikingCluster, broken: list[str]) -> tuple[str, ...]:
    ends_as = shape(cluster)
    differs = [
        f"{' '.join(map(str, place))}: {ends_as.get(place)} instead of {chapter.ends_as.get(place)}"
        for place in sorted(ends_as.keys() | chapter.ends_as.keys(), key=str)
        if ends_as.get(place) != chapter.ends_as.get(place)
    ]
    more = [*(Counter(cluster.pods_made) - Counter(chapter.pods_made))]
    return (*broken, *differs, *(f"Pod {name}: made once more" for name in more))


def shape(cluster: StrikingCluster) -> dict[Place, str]:
    """Return everything that is stored, without what differs between any two lives: uids, versions,
    times and keys.
    """
    return {
        place: _shape_of(item)
        for place, item in cluster.objects.items()
        if place[0] != EVENTS.plural
    }


def _shape_of(item: Manifest) -> str:
    without = {
        field: value
        for field, value in item.items()
        if field != "data" or item["kind"] != SECRETS.kind
    }
    return _PASSING.sub("_", json.dumps(_lasting(without), sort_keys=True))


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {field: _lasting(inner) for field, inner in value.items() if field not in _VARYING}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value


def _objects(cluster: StrikingCluster) -> list[Manifest]:
    return [item for (plural, _, _), item in cluster.objects.items() if plural != EVENTS.plural]
