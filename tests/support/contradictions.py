"""What one status must never say at once: pure functions of a status as it is published, each a list
of what excludes what.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.api.conditions import ALWAYS
from shardwright.rendering.names import generation_of
from tests.support.said import condition_in


def contradictions(status: Mapping[str, Any], serving: int | None = None) -> list[str]:
    """Return what a status says that cannot be true together, or beside ``serving`` groups that
    serve (None: nobody has counted).
    """
    return [*_of_conditions(status), *_of_counts(status, serving)]


def _of_conditions(status: Mapping[str, Any]) -> Iterator[str]:
    shown = {item["type"]: item for item in status["conditions"]}
    yield from (f"{kind} is missing" for kind in sorted(ALWAYS - shown.keys()))
    yield from (
        f"{kind} is shown, and {item['status']}"
        for kind, item in shown.items()
        if kind not in ALWAYS and item["status"] != "True"
    )
    true = {kind for kind, item in shown.items() if item["status"] == "True"}
    for one, other in (
        ("Ready", "Stalled"),
        ("Stalled", "Reconciling"),
        ("Ready", "RolloutStopped"),
        ("RolledBack", "NoWayBack"),
    ):
        if {one, other} <= true:
            yield f"{one} and {other}"
    if {"Ready", "Reconciling"} <= true and "PartlyPlaced" not in true:
        yield "Ready and Reconciling, and nothing waits for a place"
    if "Ready" in true and condition_in(status, "Planned")["status"] == "False":
        yield "Ready without a plan"


def _of_counts(status: Mapping[str, Any], serving: int | None) -> Iterator[str]:
    count, updated = status["readyReplicas"], status.get("updatedReplicas", 0)
    named = {generation_of(group["name"])[0] for group in status["groups"] if group["ready"]}
    if len(named) != count:
        yield f"{count} serve, and {sorted(named)} are shown as ready"
    if "ready" in status and status["ready"].partition("/")[0] != str(count):
        yield f"{count} serve, and the column says {status['ready']}"
    if serving is not None and count > serving:
        yield f"{count} are said to serve, and {serving} do"
    if updated > count:
        yield f"{updated} serve as the spec says, of {count} that serve"
    if updated and condition_in(status, "RolledBack")["status"] == "True":
        yield f"{updated} serve as the spec says, which is rolled back"
    ready = condition_in(status, "Ready")
    if ready["status"] == "True" and ready["reason"] == "Serving":
        yield from _of_serving(status, count)
    said = re.search(r"(?:^|; )(\d+) of \d+ serve\b", ready["message"])
    if said and ready["status"] != "True" and int(said[1]) != count:
        yield f"{count} serve, and the message says {said[1]}"


def _of_serving(status: Mapping[str, Any], count: int) -> Iterator[str]:
    down = [group["name"] for group in status["groups"] if not group["ready"]]
    partly = condition_in(status, "PartlyPlaced")["status"] == "True"
    if not count or (down and not partly):
        yield f"Ready, and {down or 'all'} do not serve"
    degraded = condition_in(status, "Degraded")
    # One that has failed and has no place may stand beside those that serve.
    if degraded["status"] == "True" and degraded["reason"] != "NodeLost" and not partly:
        yield f"Ready, and degraded: {degraded['message']}"
