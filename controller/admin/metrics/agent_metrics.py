"""Metrics of node agents and of the contention that they measure."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.admin.metrics.families import counter, gauge
from controller.contention.measurement import Measurement
from controller.profiles.current import Contention
from controller.profiles.sensitivity import IdealSource

_SENSITIVITIES = (0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class AgentMetrics(Collector):
    """Metrics of the agents' streams and of contention. Labels are gRPC's status codes and the sources of ideal speeds."""

    def __init__(self, measuring: Measurement, registry: CollectorRegistry) -> None:
        self._measuring = measuring
        self._sensitivity = Histogram(
            "headway_contention_sensitivity", "Times that jobs were slower than alone, once for each job and window",
            ["source"], registry=registry, buckets=_SENSITIVITIES,
        )  # fmt: skip
        for source in IdealSource:
            self._sensitivity.labels(source.value)
        measuring.listeners.append(self._on_contention)
        registry.register(self)

    def _on_contention(self, found: Contention) -> None:
        if found.sensitivity is not None:
            self._sensitivity.labels(found.source).observe(found.value)

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        agents = self._measuring.agents
        yield gauge("headway_agents_connected", "Node agents whose stream is open", self._measuring.connected)
        yield counter("headway_agent_reports", "Reports of agents that were stored", agents.reports)
        refused = CounterMetricFamily(
            "headway_agent_streams_refused",
            "Streams of agents that were refused, or ended for a cause",
            labels=["code"],
        )
        for code, number in dict(agents.refused).items():
            refused.add_metric([code], number)
        yield refused
        left_out = CounterMetricFamily(
            "headway_agent_reports_left_out",
            "Reports of agents that were not used: out of bounds, of a job that runs on other nodes, or not storable",
            labels=["reason"],
        )
        for reason, number in dict(agents.left_out).items():
            left_out.add_metric([reason], number)
        yield left_out
