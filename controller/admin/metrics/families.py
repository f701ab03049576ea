"""Metric families whose values are read at the time of the scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from controller.base.apart import LEFT_OUT

_PART = "/metrics"


def families_of(*parts: Callable[[], Iterable[Metric]]) -> Iterator[Metric]:
    """Yield the families of these parts. An error, of whatever kind, ends its part, and not the page."""
    for part in parts:
        try:
            yield from part()
        except Exception as error:  # noqa: BLE001 - a part must not hide all others
            LEFT_OUT.note(_PART, getattr(part, "__qualname__", ""), error)


class Registry(CollectorRegistry):
    """A registry whose collectors are families_of: the page has everything but the families that fail."""

    def __init__(self) -> None:
        super().__init__(auto_describe=False)

    def register(self, collector: Collector) -> None:
        """Register a collector."""
        super().register(collector if isinstance(collector, MetricWrapperBase) else _Apart(collector))


class _Apart(Collector):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterable[Metric]:
        return families_of(self._collector.collect)


class LeftOutMetrics(Collector):
    """The counter of errors that left out one job, node, row or part. Register it last: it counts those of its page, too."""

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        text = "Unexpected errors that left out one job, node or row, or a part of an answer, by the part of Headway"
        yield counters("headway_left_out", text, "part", {_PART: 0} | LEFT_OUT.counts())


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """Return a counter without labels."""
    return CounterMetricFamily(name, text, value=value)


def counters(name: str, text: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    """Return a counter for each value of one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key, number in dict(values).items():
        family.add_metric([key], number)
    return family


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a gauge for each value of one label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, number in dict(values).items():
        family.add_metric([key], number)
    return family
