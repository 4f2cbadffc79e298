"""Everything that was ruled out, counted by reason, each with an example and the nearest miss.

Nothing is ruled out here: that has been done by ``checks`` and by the inventory.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.planning.checks import Verdict, Violation
from shardwright.planning.phrases import degrees
from shardwright.planning.report import Exclusion

_Entry = tuple[Verdict, Violation]


def count_exclusions(
    verdicts: Sequence[Verdict], inventory: Inventory
) -> tuple[Exclusion, ...]:
    """Return the reasons that ruled out layouts, then those that ruled out nodes, the most frequent
    first.
    """
    layouts: dict[str, list[_Entry]] = defaultdict(list)
    for verdict in verdicts:
        for code in sorted(verdict.codes):
            violation = next(
                item for item in verdict.violations if item.problem.code == code
            )
            layouts[code].append((verdict, violation))
    nodes: dict[str, list[NodeExclusion]] = defaultdict(list)
    for exclusion in sorted(inventory.excluded, key=lambda item: item.node):
        nodes[exclusion.problem.code].append(exclusion)
    return (
        *(
            _layouts(code, entries)
            for code, entries in sorted(
                # The code decides among equals, so that one question always has the same answer.
                layouts.items(),
                key=lambda item: (-len(item[1]), item[0]),
            )
        ),
        *(
            _nodes(code, entries)
            for code, entries in sorted(
                nodes.items(), key=lambda item: (-len(item[1]), item[0])
            )
        ),
    )


def _layouts(code: str, entries: Sequence[_Entry]) -> Exclusion:
    nearest = min(entries, key=_distance)
    return Exclusion(
        code=code,
        count=len(entries),
        example=_sentence(entries[0]),
        nearest_miss=_sentence(nearest) if nearest[1].miss < float("inf") else "",
    )


def _distance(entry: _Entry) -> tuple[object, ...]:
    """Return the distance of a layout from a feasible one. A layout that only this reason rules out
    is nearer than one that breaks other rules too.
    """
    verdict, violation = entry
    return (len(verdict.codes), violation.miss, verdict.candidate.layout.gpus)


def _nodes(code: str, entries: Sequence[NodeExclusion]) -> Exclusion:
    example = f"node {entries[0].node}: {entries[0].problem.sentence()}"
    return Exclusion(code=code, count=len(entries), example=example, nearest_miss="")


def _sentence(entry: _Entry) -> str:
    verdict, violation = entry
    candidate = verdict.candidate
    # The field and the way out are said once, for the outcome.
    problem = replace(violation.problem, path="", remedy="")
    return f"{degrees(candidate.layout)} on {candidate.pool.name}: {problem.sentence()}"
