"""Metrics of node agents and of the contention that they measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.metrics.families import counter, counters, gauge, gauges
from controller.agents.node_table import NodeStatus
from controller.base.apart import apart
from controller.contention.measurement import Measurement
from controller.profiles.current import Contention
from controller.profiles.sensitivity import IdealSource

_TASKS = ("reporter", "saves", "watchdog")
_OTHER = "other"
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
        yield counters(
            "headway_agent_streams_refused",
            "Streams of agents that were refused, or ended for a cause",
            "code",
            agents.refused,
        )
        yield counters(
            "headway_agent_reports_left_out",
            "Reports of agents that were not used: out of bounds, of a job that runs elsewhere, beyond limits, or not storable",
            "reason",
            agents.left_out,
        )
        yield gauges(
            "headway_agent_task_failures",
            "Failures of background tasks of the agents that are connected, since the start of each",
            "task",
            _task_failures(agents.nodes),
        )


def _task_failures(nodes: Mapping[str, NodeStatus]) -> Counter[str]:
    """Return the failures by task. Names come from the agents, so that unknown ones count together."""
    found = Counter(dict.fromkeys((*_TASKS, _OTHER), 0))
    for name, node in list(nodes.items()):
        if node.connected and node.telemetry is not None:
            with apart("/metrics", name):
                for failed in node.telemetry.failed_tasks:
                    found[failed.task if failed.task in _TASKS else _OTHER] += failed.failures
    return found
