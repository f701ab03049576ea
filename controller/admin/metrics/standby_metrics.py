"""Metrics of a controller that may stand by: its part among the controllers of a cluster, and what it has while it stands by."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.metrics.families import gauge, gauges
from policies.serving.runtime.version import VERSION


def stands_by(cluster: str, value: bool) -> GaugeMetricFamily:
    """Return the gauge by which alerts tell a controller that stands by from one that is away; its label names the cluster."""
    text = "1 while the controller stands by, because another slurmctld is active; 0 while it works"
    return gauges("headway_stands_by", text, "slurm_cluster", {cluster: float(value)})


class PartMetrics(Collector):
    """The gauge of a controller that works."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def collect(self) -> Iterable[Metric]:
        """Return the value at the time of the scrape."""
        yield stands_by(self._cluster, False)


class StandbyMetrics(Collector):
    """Everything that a controller exports while it stands by: it has no journal, no lease and no snapshot."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._started_s = time.time()

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        yield stands_by(self._cluster, True)
        info = InfoMetricFamily("headway_build", "Version of the controller")
        info.add_metric([], {"version": VERSION})
        yield info
        yield gauge("headway_start_timestamp_seconds", "Start of the controller, Unix time", self._started_s)


def standby_registry(cluster: str) -> CollectorRegistry:
    """Return a registry for the time in which the controller stands by."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StandbyMetrics(cluster))
    return registry
