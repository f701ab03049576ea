"""Metric families whose values are read at the time of the scrape."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily


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
