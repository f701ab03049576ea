"""Prometheus metrics of notifications about jobs. Labels are bounded: receivers and outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.notify.outbox import Receivers


class NotificationMetrics(Collector):
    """Reads the counts of every receiver at each scrape."""

    def __init__(self, outboxes: Sequence[Receivers]) -> None:
        self._outboxes = outboxes

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        family = CounterMetricFamily(
            "headway_notifications", "Notifications about jobs, by receiver and outcome", labels=["receiver", "outcome"]
        )
        for outbox in self._outboxes:
            found = outbox.deliveries
            for outcome, number in (("sent", found.sent), ("failed", found.failed), ("dropped", found.dropped)):
                family.add_metric([outbox.name, outcome], number)
        yield family
