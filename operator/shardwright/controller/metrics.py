"""The operator's own metrics and those of the models, on a registry of their own.

Labels are bounded: verbs, resources, codes, condition types, reasons, components. The series of a model carry its
namespace and name, are made from the same values as its status, and go when it goes.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from shardwright import __version__
from shardwright.controller.queue import Key, Load
from shardwright.planning.report import Exclusion, Plan, Report
from shardwright.reconcile.findings import Findings, conditions
from shardwright.reconcile.states import GroupState
from shardwright.reconcile.work import Resolve

BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
API_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
MODEL: Final = ("namespace", "name")


class Metrics:
    """All series; one instance per process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._operator()
        self._plans()
        self._lives()
        self._shown: dict[Key, list[tuple[Gauge, tuple[str, ...]]]] = {}

    def _operator(self) -> None:
        registry = self.registry
        self.reconciles = Histogram(
            "shardwright_reconcile_duration_seconds",
            "Time of one look at one resource.",
            ("result",),
            registry=registry,
            buckets=BUCKETS,
        )
        self._queue()
        self.moving = Gauge(
            "shardwright_groups_moving", "Groups of all models that are down because they move or roll.", registry=registry
        )
        self._worker()
        self.api_requests = Counter(
            "shardwright_api_requests", "Requests to the API server.", ("verb", "resource", "code"), registry=registry
        )
        self.api_seconds = Histogram(
            "shardwright_api_request_duration_seconds",
            "Time of one request to the API server, from when it is sent.",
            ("verb", "resource"),
            registry=registry,
            buckets=API_BUCKETS,
        )
        self.last_sync = Gauge(
            "shardwright_cache_last_sync_timestamp_seconds", "Last complete LIST.", ("resource",), registry=registry
        )
        self.leader = Gauge("shardwright_leader", "1 while this process leads.", registry=registry)
        build = Gauge("shardwright_build_info", "Version of the operator.", ("version",), registry=registry)
        build.labels(__version__).set(1)

    def _worker(self) -> None:
        registry = self.registry
        self.planning = Counter("shardwright_planning_cpu_seconds", "CPU time that the planner has taken.", registry=registry)
        self._work = Counter(
            "shardwright_worker_cpu_seconds",
            "CPU time of questions that the worker has answered.",
            ("question",),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "shardwright_worker_restarts", "Workers that were replaced, by why.", ("reason",), registry=registry
        )
        self.worker_refusals = Counter(
            "shardwright_worker_refusals", "Questions that got no answer within their budget.", ("reason",), registry=registry
        )

    def count_work(self, question: str, cpu_seconds: float) -> None:
        """Count the CPU time of a question that the worker has answered."""
        self._work.labels(question).inc(cpu_seconds)
        if question != Resolve.__name__:
            self.planning.inc(cpu_seconds)

    def _queue(self) -> None:
        registry = self.registry
        self._depth = Gauge(
            "shardwright_queue_depth", "Resources that wait to be looked at, by urgency.", ("priority",), registry=registry
        )
        self._oldest = Gauge("shardwright_queue_oldest_age_seconds", "How long the first one waits.", registry=registry)
        self._unfinished = Gauge(
            "shardwright_queue_unfinished_seconds", "How long the looks that go on have taken, together.", registry=registry
        )
        self._delayed = Gauge("shardwright_queue_delayed", "Resources with an appointment or in a pause.", registry=registry)

    def show_load(self, load: Load, moving: int) -> None:
        """Replace the series of the queue and of the groups that move."""
        for priority, depth in load.depth.items():
            self._depth.labels(priority.name.lower()).set(depth)
        self._oldest.set(load.oldest_seconds)
        self._unfinished.set(load.unfinished_seconds)
        self._delayed.set(load.delayed)
        self.moving.set(moving)

    def _plans(self) -> None:
        registry = self.registry
        degrees = ("tensor", "pipeline", "expert", "attention_data", "context", "replicas", "pool")
        self._layout = Gauge("shardwright_plan_info", "The layout that stands; always 1.", (*MODEL, *degrees), registry=registry)
        self._gpus = Gauge("shardwright_plan_gpus", "GPUs of the plan.", MODEL, registry=registry)
        self._memory = Gauge(
            "shardwright_plan_memory_bytes",
            "Bytes on the fullest rank of a stage, by component.",
            (*MODEL, "stage", "component"),
            registry=registry,
        )
        self._headroom = Gauge(
            "shardwright_plan_headroom_tokens", "Tokens of K/V cache beyond one longest request.", MODEL, registry=registry
        )
        self._ttft = Gauge("shardwright_plan_ttft_seconds", "Predicted mean time to first token.", MODEL, registry=registry)
        self._tpot = Gauge("shardwright_plan_tpot_seconds", "Predicted mean time per output token.", MODEL, registry=registry)
        self._throughput = Gauge(
            "shardwright_plan_output_tokens_per_second", "Predicted, over all replicas.", MODEL, registry=registry
        )
        self._excluded = Gauge(
            "shardwright_plan_excluded", "Layouts and nodes ruled out, by reason.", (*MODEL, "reason"), registry=registry
        )

    def _lives(self) -> None:
        registry, group = self.registry, (*MODEL, "group")
        self._condition = Gauge(
            "shardwright_model_condition",
            "A condition of the model's status as it is; always 1.",
            (*MODEL, "type", "status", "reason"),
            registry=registry,
        )
        self._wanted = Gauge("shardwright_model_groups_wanted", "Groups that shall run.", MODEL, registry=registry)
        self._ready = Gauge("shardwright_model_groups_ready", "Groups that are ready.", MODEL, registry=registry)
        self._group_ready = Gauge("shardwright_group_ready", "1 while the group is ready.", group, registry=registry)
        self._restarts = Gauge("shardwright_group_restarts", "Restarts of the group, as remembered.", group, registry=registry)
        self._outage = Gauge(
            "shardwright_group_last_outage_seconds",
            "From the group's last stop until all its ranks were ready again.",
            group,
            registry=registry,
        )
        self._spent = Gauge(
            "shardwright_group_restart_budget_spent",
            "1 while the engine has failed more often in a row than spec.restart.budget.",
            group,
            registry=registry,
        )

    def count_call(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count a finished request (code 0: no answer) and its time; from any thread."""
        self.api_requests.labels(verb, resource, str(code)).inc()
        self.api_seconds.labels(verb, resource).observe(seconds)

    def show(self, key: Key, found: Findings, report: Report | None) -> None:
        """Replace the series of one model; those that stay are there all the time."""
        before = self._shown.pop(key, [])
        if found.hidden:  # nobody knows that anything but the conditions has changed
            self._shown[key] = [(gauge, labels) for gauge, labels in before if gauge is not self._condition]
        if report:
            self._show_report(key, report)
        self._show_conditions(key, found)
        if not found.hidden:
            self._show_groups(key, found)
        shown = set(self._shown.get(key, ()))
        for gauge, labels in before:
            if (gauge, labels) not in shown:
                gauge.remove(*labels)

    def _show_report(self, key: Key, report: Report) -> None:
        if isinstance(report.outcome, Plan):
            self._show_layout(key, report.outcome)
            self._show_memory(key, report.outcome)
            self._show_performance(key, report.outcome)
        self._show_excluded(key, report.excluded)

    def drop(self, key: Key) -> None:
        """Remove all series of a model."""
        for gauge, labels in self._shown.pop(key, ()):
            gauge.remove(*labels)

    def _set(self, gauge: Gauge, key: Key, value: float, *labels: str) -> None:
        series = (*key, *labels)
        gauge.labels(*series).set(value)
        self._shown.setdefault(key, []).append((gauge, series))

    def _show_layout(self, key: Key, plan: Plan) -> None:
        layout = plan.layout
        degrees = (layout.tensor, layout.pipeline, layout.expert, layout.attention_data, layout.context, layout.replicas)
        self._set(self._layout, key, 1, *map(str, degrees), plan.pool)
        self._set(self._gpus, key, layout.gpus)

    def _show_memory(self, key: Key, plan: Plan) -> None:
        for stage in plan.stages:
            components = {
                "weights": stage.weights_bytes,
                "activations": stage.activations_bytes,
                "overhead": stage.overhead_bytes,
                "kv_cache": stage.kv_cache_bytes,
                "budget": stage.budget_bytes,
            }
            for component, count in components.items():
                self._set(self._memory, key, count, str(stage.stage), component)
        self._set(self._headroom, key, plan.kv_tokens - plan.max_model_len)

    def _show_performance(self, key: Key, plan: Plan) -> None:
        self._set(self._ttft, key, plan.performance.ttft_seconds)
        self._set(self._tpot, key, plan.performance.tpot_seconds)
        self._set(self._throughput, key, plan.performance.output_tokens_per_second)

    def _show_excluded(self, key: Key, excluded: Sequence[Exclusion]) -> None:
        counts: dict[str, int] = {}
        for exclusion in excluded:
            counts[exclusion.code] = counts.get(exclusion.code, 0) + exclusion.count
        for code, count in counts.items():
            self._set(self._excluded, key, count, code)

    def _show_conditions(self, key: Key, found: Findings) -> None:
        for condition in conditions(found):
            self._set(self._condition, key, 1, condition.type, condition.status_word, str(condition.reason))

    def _show_groups(self, key: Key, found: Findings) -> None:
        if found.wanted is not None:
            self._set(self._wanted, key, found.wanted)
        self._set(self._ready, key, sum(group.ready for group in found.groups))
        for group in found.groups:
            self._show_group(key, group)

    def _show_group(self, key: Key, group: GroupState) -> None:
        self._set(self._group_ready, key, group.ready, group.name)
        self._set(self._restarts, key, group.restarts, group.name)
        self._set(self._spent, key, group.budget_spent, group.name)
        if group.outage_seconds is not None:
            self._set(self._outage, key, group.outage_seconds, group.name)

    def text(self) -> bytes:
        """Return everything in the Prometheus text format."""
        return generate_latest(self.registry)
