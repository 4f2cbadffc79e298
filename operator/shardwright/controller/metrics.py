"""The operator's metrics and the models', on a registry of their own.

Labels are bounded: verbs, resources, codes, condition types, reasons, components. A model's series
carry its namespace and name, are made from the same values as its status, and go with it.

The models' series as values: 3,000 models have 90,000, and a library object takes 0.6 KiB.
"""

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shardwright import __version__
from shardwright.cluster.calls import Urgency
from shardwright.controller.http_server import Encode
from shardwright.controller.queue import Key, QueueLoad
from shardwright.planning.report import Exclusion, Plan, Report
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.members import GroupState
from shardwright.reconcile.model_status import conditions
from shardwright.reconcile.planner_work import Resolve
from shardwright.sinks import in_metric

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ModelGauge:
    """A metric of models, with the names of all its labels."""

    name: str
    text: str
    labels: tuple[str, ...]


Series = tuple[ModelGauge, tuple[str, ...]]
"""A metric and the values of all its labels."""


class ModelSeries(Collector):
    """At most ``most`` series of all models together; ``hidden`` counts the models that lack some.

    ``first`` are the metrics a model gets first if there is no room for all.
    """

    def __init__(
        self, gauges: Sequence[ModelGauge], first: ModelGauge, most: int, hidden: Gauge
    ) -> None:
        self._gauges = gauges
        self._first = first
        self._most = most
        self._hidden = hidden
        self._count = 0
        self._left_out: set[Key] = set()
        self._shown: dict[Key, Mapping[Series, float]] = {}

    def of(self, key: Key) -> Mapping[Series, float]:
        """Return the series of a model with their values; nobody may change them."""
        return self._shown.get(key, {})

    def show(self, key: Key, wanted: Mapping[Series, float]) -> None:
        """Replace the series of a model."""
        now = self._bounded(key, wanted)
        self._count += len(now) - len(self.of(key))
        self._shown[key] = now

    def drop(self, key: Key) -> None:
        """Remove all series of a model."""
        self._count -= len(self._shown.pop(key, {}))
        self._left_out.discard(key)
        self._hidden.set(len(self._left_out))

    def _bounded(self, key: Key, wanted: Mapping[Series, float]) -> Mapping[Series, float]:
        """Return the series a model gets: all or, without room, those it has, then the first."""
        before = self.of(key)
        room = self._most - self._count + len(before)
        fits = len(wanted) <= room
        if not (fits or self._left_out):
            told = {"key": "/".join(key)}
            log.warning(
                "models have %d series, and may have %d: this one lacks some",
                self._count,
                self._most,
                extra=told,
            )
        (self._left_out.discard if fits else self._left_out.add)(key)
        self._hidden.set(len(self._left_out))
        if fits:
            return wanted
        # Series that exist go first: one that comes and goes is of no use in a graph.
        by_rank = sorted(
            wanted, key=lambda series: (series not in before, series[0] is not self._first)
        )
        return {series: wanted[series] for series in by_rank[:room]}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with all its series; on the thread of the scrape."""
        # Each is replaced as a whole, so it does not change while it is read here.
        shown = list(self._shown.values())
        for gauge in self._gauges:
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
            for series in shown:
                for (which, labels), value in series.items():
                    if which is gauge:
                        family.add_metric(labels, value)
            # One metric at a time, as the text format wants all series of one together.
            yield family


BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
API_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
MODEL: Final = ("namespace", "name")

GaugeValue = tuple[ModelGauge, float, *tuple[str, ...]]
"""A gauge of a model, its value, and the values of its labels beside those of the model."""


class Metrics:
    """All series of a process of an installation; those of models are at most ``most_series``."""

    def __init__(self, most_series: int = sys.maxsize, installation: str = "") -> None:
        # The library would add a series with the time of creation to each counter and histogram.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        # Not the library's global one: two instances in one process share no series.
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._operator(installation)
        self._gauges: list[ModelGauge] = []
        self._plans()
        self._lives()
        self._models = ModelSeries(self._gauges, self._condition, most_series, self._hidden)
        self.registry.register(self._models)

    def _leader(self) -> Gauge:
        return Gauge(
            "shardwright_leader",
            "1 while this process leads.",
            # That another one leads says nothing of this one.
            ("installation",),
            registry=self.registry,
        )

    def _gauge(self, name: str, text: str, *labels: str) -> ModelGauge:
        gauge = ModelGauge(f"shardwright_{name}", text, (*MODEL, *labels))
        self._gauges.append(gauge)
        return gauge

    def _operator(self, installation: str) -> None:
        registry = self.registry
        self.reconciles = Histogram(
            "shardwright_reconcile_duration_seconds",
            "Time of one reconcile of one resource.",
            ("result",),
            registry=registry,
            buckets=BUCKETS,
        )
        self._queue()
        self.moving = Gauge(
            "shardwright_groups_moving",
            "Groups of all models that are down because they move or roll.",
            registry=registry,
        )
        self._worker()
        self._requests()
        self._readings()
        self.being_deleted = Gauge(
            "shardwright_models_being_deleted",
            "Models that were deleted and were still there at the last complete LIST.",
            registry=registry,
        )
        self._hidden = Gauge(
            "shardwright_models_without_series",
            "Models that lack series, because there may be no more.",
            registry=registry,
        )
        self.leader = self._leader().labels(in_metric(installation))
        build = Gauge(
            "shardwright_build_info", "Version of the operator.", ("version",), registry=registry
        )
        build.labels(__version__).set(1)

    def _readings(self) -> None:
        registry = self.registry
        self.last_sync = Gauge(
            "shardwright_cache_last_sync_timestamp_seconds",
            "Last complete LIST.",
            ("resource",),
            registry=registry,
        )
        self._readable = Gauge(
            "shardwright_watched_namespace_readable",
            "1 while the operator may read a namespace of watchNamespaces, 0 while it may not.",
            ("namespace",),
            registry=registry,
        )

    def _requests(self) -> None:
        registry = self.registry
        self.api_requests = Counter(
            "shardwright_api_requests",
            "Requests to the API server.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self.api_seconds = Histogram(
            "shardwright_api_request_duration_seconds",
            "Time of one request to the API server, from when it is sent.",
            ("verb", "resource"),
            registry=registry,
            buckets=API_BUCKETS,
        )
        self._request_waits = Histogram(
            "shardwright_api_request_wait_seconds",
            "Time for which a request to the API server waited for its turn.",
            ("urgency",),
            registry=registry,
            buckets=API_BUCKETS,
        )
        self._turn_waits = Histogram(
            "shardwright_turn_wait_seconds",
            "Time for which a model waited for its turn where one is served at a time.",
            ("at",),
            registry=registry,
            buckets=API_BUCKETS,
        )

    def _worker(self) -> None:
        registry = self.registry
        self.planning = Counter(
            "shardwright_planning_cpu_seconds",
            "CPU time that the planner has taken.",
            registry=registry,
        )
        self._work = Counter(
            "shardwright_worker_cpu_seconds",
            "CPU time of questions that the worker has answered.",
            ("question",),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "shardwright_worker_restarts",
            "Workers that were replaced, by why.",
            ("reason",),
            registry=registry,
        )
        self.worker_refusals = Counter(
            "shardwright_worker_refusals",
            "Questions that got no answer within their budget.",
            ("reason",),
            registry=registry,
        )

    def count_work(self, question: str, cpu_seconds: float) -> None:
        """Count the CPU time of a question that the planner process has answered."""
        self._work.labels(question).inc(cpu_seconds)
        # Reading a resource is no planning, and happens also where nothing is planned.
        if question != Resolve.__name__:
            self.planning.inc(cpu_seconds)

    def _queue(self) -> None:
        registry = self.registry
        self._depth = Gauge(
            "shardwright_queue_depth",
            "Resources that wait to be looked at, by urgency.",
            ("priority",),
            registry=registry,
        )
        self._oldest = Gauge(
            "shardwright_queue_oldest_age_seconds",
            "How long the first one waits.",
            registry=registry,
        )
        self._unfinished = Gauge(
            "shardwright_queue_unfinished_seconds",
            "How long all reconciles under way have taken so far, together.",
            registry=registry,
        )
        self._delayed = Gauge(
            "shardwright_queue_delayed",
            "Resources with an appointment or in a pause.",
            registry=registry,
        )

    def show_load(self, load: QueueLoad, moving: int) -> None:
        """Replace the series of the queue and of moving groups."""
        for priority, depth in load.depth.items():
            self._depth.labels(priority.name.lower()).set(depth)
        self._oldest.set(load.oldest_seconds)
        self._unfinished.set(load.unfinished_seconds)
        self._delayed.set(load.delayed)
        self.moving.set(moving)

    def show_namespaces(self, watched: Iterable[str], refused: Collection[str]) -> None:
        """Replace the series of watched namespaces; ``refused`` may not be read."""
        for namespace in watched:
            self._readable.labels(namespace).set(namespace not in refused)

    def _plans(self) -> None:
        new = self._gauge
        degrees = ("tensor", "pipeline", "expert", "attention_data", "context", "replicas", "pool")
        self._layout = new("plan_info", "The layout that stands; always 1.", *degrees)
        self._gpus = new("plan_gpus", "GPUs of the plan.")
        self._memory = new(
            "plan_memory_bytes",
            "Bytes on the fullest rank of a stage, by component.",
            "stage",
            "component",
        )
        self._headroom = new(
            "plan_headroom_tokens", "Tokens of K/V cache beyond one longest request."
        )
        self._kv_tokens = new("plan_kv_tokens", "Tokens of K/V cache of a replica.")
        self._predictions()
        self._excluded = new("plan_excluded", "Layouts and nodes ruled out, by reason.", "reason")

    def _predictions(self) -> None:
        new = self._gauge
        self._loading = new(
            "plan_load_seconds", "Predicted: how long a node reads weights at a start."
        )
        self._parts = new(
            "plan_tpot_part_seconds",
            "Predicted: where the mean time of an output token goes.",
            "part",
        )
        self._ttft = new("plan_ttft_seconds", "Predicted mean time to first token.")
        self._tpot = new("plan_tpot_seconds", "Predicted mean time per output token.")
        self._throughput = new("plan_output_tokens_per_second", "Predicted, over all replicas.")
        self._band = new(
            "plan_output_tokens_per_second_bound",
            "Ends of the band in which the output lies in 8 of 10 cases.",
            "bound",
        )
        self._running = new(
            "plan_running_requests",
            "Requests in work at once at the planned load, over all replicas.",
        )
        self._hits = new(
            "plan_prefix_hits", "Share of input tokens that the plan counts as cached, if any is."
        )
        self._held = new(
            "plan_replica_requests", "Requests in flight that one replica just holds in time."
        )

    def _lives(self) -> None:
        new = self._gauge
        self._condition = new(
            "model_condition",
            "A condition of the model's status as it is; always 1.",
            "type",
            "status",
            "reason",
        )
        self._wanted = new("model_groups_wanted", "Groups that shall run.")
        self._placed = new("model_groups_placed", "Groups that have a place by the plan.")
        self._serving = new("model_groups_serving", "Groups that serve, whatever their revision.")
        self._updated = new("model_groups_updated", "Groups that serve as the spec says.")
        self._pending = new(
            "model_groups_rollout_pending",
            "Groups whose pods another release rendered, or for another LimitRange, and which "
            "would be rendered differently now.",
        )
        self._lives_of_groups()

    def _lives_of_groups(self) -> None:
        new = self._gauge
        self._group_ready = new(
            "group_ready", "1 while the group serves, whatever its revision.", "group"
        )
        self._restarts = new("group_restarts", "Restarts of the group, as remembered.", "group")
        self._bound = new("group_pods_bound", "Pods of the group that are on nodes.", "group")
        self._pods = new("group_pods_wanted", "Pods that the group is made of.", "group")
        self._failure = new(
            "group_last_failure", "Why a pod of the group failed last; always 1.", "group", "reason"
        )
        self._outage = new(
            "group_last_outage_seconds",
            "From the group's last stop until all its ranks were ready again.",
            "group",
        )
        self._spent = new(
            "group_restart_budget_spent",
            "1 while the engine has failed more often in a row than spec.restart.budget.",
            "group",
        )

    def count_call(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count a finished request (code 0: no response) and its time; from any thread."""
        self.api_requests.labels(verb, resource, str(code)).inc()
        self.api_seconds.labels(verb, resource).observe(seconds)

    def count_wait(self, urgency: Urgency, seconds: float) -> None:
        """Observe how long a request waited for its turn."""
        self._request_waits.labels(urgency.name.lower()).observe(seconds)

    def turn_waits(self, at: str) -> Callable[[float], None]:
        """Return the function that observes a model's wait for its turn at this."""
        return self._turn_waits.labels(at).observe

    def show(self, key: Key, found: Findings, report: Report | None) -> None:
        """Replace the series of one model."""
        now = dict(self._series(key, found, report))
        if found.hidden:  # nobody knows that anything but the conditions has changed
            # The last known values stand: a gap would look as if the model had gone.
            before = self._models.of(key)
            now = {
                series: value
                for series, value in before.items()
                if series[0] is not self._condition
            } | now
        self._models.show(key, now)

    def drop(self, key: Key) -> None:
        """Remove all series of a model."""
        self._models.drop(key)

    def _series(
        self, key: Key, found: Findings, report: Report | None
    ) -> Iterator[tuple[Series, float]]:
        lives = () if found.hidden else self._of_groups(found)
        shown = chain(self._of_report(report) if report else (), self._of_conditions(found), lives)
        model = tuple(map(in_metric, key))
        yield from (
            ((gauge, (*model, *map(in_metric, labels))), value) for gauge, value, *labels in shown
        )

    def _of_report(self, report: Report) -> Iterator[GaugeValue]:
        plan = report.outcome
        if isinstance(plan, Plan):
            yield from self._of_layout(plan)
            yield from self._of_memory(plan)
            if plan.performance.promised:
                yield from self._of_performance(plan)
        yield from self._of_excluded(report.excluded)

    def _of_layout(self, plan: Plan) -> Iterator[GaugeValue]:
        layout = plan.layout
        cut = (
            str(layout.tensor),
            str(layout.pipeline),
            str(layout.expert),
            str(layout.attention_data),
            str(layout.context),
        )
        yield self._layout, 1, *cut, str(layout.replicas), plan.pool
        yield self._gpus, layout.gpus

    def _of_memory(self, plan: Plan) -> Iterator[GaugeValue]:
        for stage in plan.stages:
            components = {
                "weights": stage.weights_bytes,
                "activations": stage.activations_bytes,
                "overhead": stage.overhead_bytes,
                "kv_cache": stage.kv_cache_bytes,
                "budget": stage.budget_bytes,
            }
            for component, count in components.items():
                yield self._memory, count, str(stage.stage), component
        yield self._headroom, plan.kv_tokens - plan.max_model_len
        yield self._kv_tokens, plan.kv_tokens
        if plan.load is not None:
            yield self._loading, plan.load.seconds

    def _of_performance(self, plan: Plan) -> Iterator[GaugeValue]:
        predicted = plan.performance
        yield self._ttft, predicted.ttft_seconds
        yield self._tpot, predicted.tpot_seconds
        yield self._throughput, predicted.output_tokens_per_second
        yield self._band, predicted.low, "low"
        yield self._band, predicted.high, "high"
        yield self._running, predicted.running_requests * plan.layout.replicas
        if plan.replica_requests:
            yield self._held, plan.replica_requests
        parts: defaultdict[str, float] = defaultdict(float)
        for part in predicted.decode_shares:
            parts[part.name] += part.seconds
        for name, seconds in parts.items():
            yield self._parts, seconds, name

    def _of_excluded(self, excluded: Sequence[Exclusion]) -> Iterator[GaugeValue]:
        counts: dict[str, int] = {}
        for exclusion in excluded:
            counts[exclusion.code] = counts.get(exclusion.code, 0) + exclusion.count
        for code, count in counts.items():
            yield self._excluded, count, code

    def _of_conditions(self, found: Findings) -> Iterator[GaugeValue]:
        for condition in conditions(found):
            yield (self._condition, 1, condition.type, condition.status_word, condition.reason)

    def _of_groups(self, found: Findings) -> Iterator[GaugeValue]:
        if found.prefix_hits:
            yield self._hits, found.prefix_hits
        wanted = found.asked_for if found.wanted is None else found.wanted
        if wanted is not None:
            yield self._wanted, wanted
        if found.wanted is not None:
            yield self._placed, found.placed or 0
        pods = found.plan.nodes_per_replica if found.plan else None
        yield self._serving, found.serving
        yield self._updated, found.updated
        yield self._pending, len(found.of_another_rendering)
        for group in found.groups:
            yield from self._of_group(group)
            if pods is not None:
                yield self._pods, pods, group.name

    def _of_group(self, group: GroupState) -> Iterator[GaugeValue]:
        yield self._group_ready, group.serves, group.name
        yield self._restarts, group.restarts, group.name
        yield self._spent, group.budget_spent, group.name
        yield self._bound, sum(node is not None for node in group.nodes), group.name
        if group.last_failure is not None:
            yield self._failure, 1, group.name, group.last_failure.reason
        if group.outage_seconds is not None:
            yield self._outage, group.outage_seconds, group.name

    def text(self, encode: Encode = generate_latest) -> bytes:
        """Return all metrics in the Prometheus text format, or another one of the library."""
        return encode(self.registry)
