"""The models' series as values: 3,000 models have 90,000, and a library object takes 0.6 KiB."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shardwright.controller.queue import Key

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
