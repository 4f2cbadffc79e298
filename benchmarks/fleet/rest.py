"""What the operator costs when nothing happens, and when something happens that changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.fleet import population
from benchmarks.fleet.bench import Bench
from benchmarks.fleet.population import FOREIGN
from benchmarks.fleet.requests import count, writes
from shardwright.controller.rate_limits import PACE_SECONDS
from tests.support.operator import OperatorProcess

SETTLE_SECONDS: Final = PACE_SECONDS
"""Within them the status that was held back while all was busy is written: no work of the rest."""
EVENTS_QUIET_SECONDS: Final = 120.0
SCRAPES: Final = 3
POD_EVENT: Final = "pod_event.cpu_milliseconds"
NODE_EVENT: Final = "node_event.cpu_milliseconds"


def rest(bench: Bench) -> None:
    """Watch the operator do nothing for a while."""
    seconds = bench.size.rest_seconds
    bench.quiet(["first"], bench.size.limit_seconds)
    time.sleep(SETTLE_SECONDS)
    with bench.steps.step(f"at rest for {seconds:g} s"):
        mark, before = bench.audit.mark(), bench.read()
        time.sleep(seconds)
        spent = bench.cpu["rest"] = before.until(bench.read())
        requests = count(bench.audit.since(mark))
    bench.figures["rest.writes"] = writes(requests)
    bench.figures["rest.requests"] = sum(requests.values())
    bench.figures["rest.cpu_percent_of_a_core"] = 100 * spent["first"] / spent["seconds"]
    if requests:
        bench.note(
            "At rest: "
            + ", ".join(f"{number} {what}" for what, number in requests.most_common(5))
            + "."
        )


def events(bench: Bench) -> None:
    """Send events that change nothing that matters: an annotation of a foreign pod, a heartbeat of
    a node.
    """
    api, wanted = bench.control_plane.api, bench.size.events
    pods = _repeated(
        [f"/api/v1/namespaces/{FOREIGN}/pods/train-{index:06}" for index in range(bench.size.pods)],
        wanted,
    )
    nodes = [node["metadata"]["name"] for node in population.nodes(bench.size.nodes)]
    statuses = _repeated([f"/api/v1/nodes/{name}/status" for name in nodes], wanted)

    def annotate(path: str) -> None:
        api.patch(
            path, {"metadata": {"annotations": {"example.org/step": str(time.monotonic_ns())}}}
        )

    def beat(path: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        api.patch(
            path,
            {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": now}]}},
            "strategic",
        )

    _events(bench, POD_EVENT, f"{wanted:,} foreign pods annotated", annotate, pods)
    _events(bench, NODE_EVENT, f"{wanted:,} node heartbeats", beat, statuses)


def _repeated(paths: Sequence[str], wanted: int) -> list[str]:
    return [paths[index % len(paths)] for index in range(wanted)]


def _events(
    bench: Bench, key: str, what: str, send: Callable[[str], Any], paths: Sequence[str]
) -> None:
    mark, before = bench.audit.mark(), bench.read()
    bench.in_parallel(what, send, paths, len(paths))
    bench.quiet(["first"], EVENTS_QUIET_SECONDS)
    spent = before.until(bench.read())
    bench.cpu[key.partition(".")[0]] = spent
    at_rest = bench.figures["rest.cpu_percent_of_a_core"] / 100 * spent["seconds"]
    bench.figures[key] = 1000 * max(spent["first"] - at_rest, 0.0) / len(paths)
    if caused := count(bench.audit.since(mark)):
        bench.note(f"{what} made the operator ask {sum(caused.values())} times.")


def scrape(bench: Bench, operator: OperatorProcess) -> None:
    """Read the metrics a few times."""
    before = bench.read()
    texts = [operator.get("/metrics")[1] for _ in range(SCRAPES)]
    spent = before.until(bench.read())
    bench.figures["scrape.cpu_milliseconds"] = 1000 * spent["first"] / SCRAPES
    bench.figures["scrape.kibibytes"] = len(texts[-1]) / 1024
