"""From the start of the operator until all models are Ready, with a crash now and then in one of
them.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.fleet import population, processes
from benchmarks.fleet.bench import PARALLEL, Bench, Reading
from benchmarks.fleet.population import PROBES
from benchmarks.fleet.requests import count, first_at
from tests.harness.api import Manifest
from tests.support.operator import OperatorProcess

CRASHES_AT: Final = (0.25, 0.5, 0.75)
"""Shares of the models that are placed when a probe crashes."""

CHILDREN: Final = (
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/services",
)
"""What the operator makes for a model, by the path of its list."""

FAILOVERS: Final = 2
LONG_RESYNC: Final = "--resync-seconds=360000"
START_SECONDS: Final = 600.0
PROBE_SECONDS: Final = 120.0


def start(bench: Bench, identity: str = "first", *arguments: str) -> OperatorProcess:
    """Start an operator that compares everything once, at its start; measure that."""
    mark, began, wall = bench.audit.mark(), time.monotonic(), time.time()
    operator = bench.new_operator(identity, *(arguments or (LONG_RESYNC,)))
    with bench.steps.step(f"operator {identity} started, its caches are filled"):
        operator.start(START_SECONDS)
        ready = time.monotonic()
        bench.quiet([identity], START_SECONDS)
    if identity == "first":
        first = first_at(bench.audit.since(mark))
        bench.figures["start.first_request_seconds"] = (first or wall) - wall
        bench.figures["start.ready_seconds"] = ready - began
        bench.figures["start.cpu_seconds"] = bench.read().cpu[identity]
    return operator


def bring_up(bench: Bench, operator: OperatorProcess) -> None:
    """Apply all models; measure until the last has its StatefulSet, and until all are Ready."""
    _apply(bench, population.probes(len(CRASHES_AT) + FAILOVERS))
    probes = len(CRASHES_AT) + FAILOVERS
    if not bench.seen.wait(lambda: len(bench.seen.ready) == probes, PROBE_SECONDS):
        raise RuntimeError(f"the probes are not Ready: {bench.seen.reasons}")
    bench.quiet(["first"], PROBE_SECONDS)
    planning = bench.planning_seconds(operator)
    mark, before, began = bench.audit.mark(), bench.read(), time.monotonic()
    models = population.models(bench.size.models)
    applied = _apply(bench, models)
    bench.figures["apply.seconds"] = applied - began
    names = {model["metadata"]["name"] for model in models}
    _wait_placed(bench, names, applied)
    _wait_ready(bench, names, applied, before)
    after = bench.cpu["bring_up"]
    requests = count(bench.audit.since(mark))
    bench.requests |= {what: number / len(models) for what, number in sorted(requests.items())}
    bench.figures["bring_up.requests_per_model"] = sum(requests.values()) / len(models)
    children = bench.figures["bring_up.child_objects_per_model"] = _children(bench) / len(models)
    bench.figures["bring_up.requests_without_children_per_model"] = (
        sum(requests.values()) / len(models) - children
    )
    bench.figures["bring_up.cpu_milliseconds_per_model"] = 1000 * after["first"] / len(models)
    _planning_apart(bench, operator, planning)


def _apply(bench: Bench, manifests: list[Manifest]) -> float:
    """Create models, several at a time; return when the last was there."""
    path = "/apis/shardwright.io/v1alpha1/namespaces/{}/shardedmodels"
    api = bench.control_plane.api
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(
            pool.map(
                lambda item: api.create(path.format(item["metadata"]["namespace"]), item), manifests
            )
        )
    return time.monotonic()


def _wait_placed(bench: Bench, names: set[str], applied: float) -> None:
    """Wait until every model has its StatefulSet; at some points on the way let a probe crash."""
    seen, limit = bench.seen, bench.size.limit_seconds
    crashes = dict(enumerate(CRASHES_AT))
    with bench.steps.step(
        f"{len(names):,} models applied, their StatefulSets made", len(names)
    ) as show:
        deadline = time.monotonic() + limit
        while (
            len(placed := names & seen.placed.keys()) < len(names) and time.monotonic() < deadline
        ):
            show(len(placed))
            due = [index for index, share in crashes.items() if len(placed) >= share * len(names)]
            for index in due:
                del crashes[index]
                crash(bench, f"probe-{index}")
            seen.wait(lambda: len(names & seen.placed.keys()) > len(placed), 1.0)
    times = [seen.placed[name] for name in names if name in seen.placed]
    bench.figures["bring_up.models_without_statefulset"] = len(names) - len(times)
    if len(times) == len(names):
        bench.figures["bring_up.statefulsets_seconds"] = max(times) - applied


def crash(bench: Bench, probe: str) -> None:
    """Let the second pod of a probe's group end with exit code 1."""
    bench.seen.emptied.pop(probe, None)
    pods = bench.control_plane.pods
    second = next(
        pod["metadata"]["name"]
        for pod in pods.list(PROBES, "apps.kubernetes.io/pod-index=1")
        if pod["metadata"]["annotations"]["shardwright.io/model-name"] == probe
    )
    pods.crash(PROBES, second)


def _wait_ready(bench: Bench, names: set[str], applied: float, before: Reading) -> None:
    seen = bench.seen
    with bench.steps.step(f"{len(names):,} models Ready", len(names)):
        done = seen.wait(lambda: names <= seen.ready.keys(), bench.size.limit_seconds)
    bench.cpu["bring_up"] = before.until(bench.read())
    if done:
        bench.figures["bring_up.ready_seconds"] = max(seen.ready[name] for name in names) - applied
    else:
        missing = sorted(f"{name} {seen.reasons.get(name)}" for name in names - seen.ready.keys())
        bench.note(f"Not Ready: {len(missing)} models, among them {', '.join(missing[:3])}.")
    probes = [f"probe-{index}" for index in range(len(CRASHES_AT))]
    seen.wait(
        lambda: all(probe in seen.emptied for probe in probes if probe in seen.crashed),
        PROBE_SECONDS,
    )
    late = sorted(
        seen.emptied[probe] - seen.crashed[probe]
        for probe in probes
        if probe in seen.emptied and probe in seen.crashed
    )
    if len(late) == len(probes):
        bench.figures["reaction.median_seconds"] = late[len(late) // 2]
        bench.figures["reaction.slowest_seconds"] = late[-1]


def _children(bench: Bench) -> int:
    """Count what the operator has made for the models of all teams; the probes are not among
    them.
    """
    selector = "app.kubernetes.io/managed-by=shardwright"
    found = [
        item
        for kind in CHILDREN
        for item in bench.control_plane.api.get(kind, labelSelector=selector)["items"]
    ]
    return sum(item["metadata"]["namespace"] != PROBES and _owned(item) for item in found)


def _owned(item: Manifest) -> bool:
    """Say whether a model owns it: a StatefulSet's own revisions carry our labels, too."""
    return any(
        owner["kind"] == "ShardedModel" for owner in item["metadata"].get("ownerReferences", ())
    )


def _planning_apart(bench: Bench, operator: OperatorProcess, before: float | None) -> None:
    after = bench.planning_seconds(operator)
    if after is None:
        return
    each = 1000 * (after - (before or 0.0)) / bench.size.models
    bench.figures["bring_up.planning_milliseconds_per_model"] = each
    bench.figures["bring_up.cpu_without_planning_milliseconds_per_model"] = (
        bench.figures["bring_up.cpu_milliseconds_per_model"] - each
    )


def memory(bench: Bench, operator: OperatorProcess) -> None:
    """Read the peak memory of the operator's processes, the main one first."""
    root = operator.running()
    if root is None:
        raise RuntimeError(f"the operator has ended:\n{operator.logs()[-3000:]}")
    peaks = processes.peak_mebibytes(root)
    workers = {
        f"worker-{index}": peaks[pid] for index, pid in enumerate(sorted(peaks.keys() - {root}), 1)
    }
    bench.memory = {"main": peaks[root], **workers}
    bench.figures["memory.main_mebibytes"] = peaks[root]
    bench.figures["memory.all_mebibytes"] = sum(peaks.values())
