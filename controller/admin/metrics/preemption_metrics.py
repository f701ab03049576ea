"""Prometheus metrics of preemptions: their number, their ends, and the duration of each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.metrics.families import gauge
from controller.cycle.view.controller_view import ControllerView
from controller.preempt.budget import BY_ITSELF, HOUR_S
from controller.state.preemption import Cause, Preemption, Stage

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0, 60.0, 120.0, 300.0, 900.0)
_ENDS = (Stage.RESUMED, Stage.STARTED, Stage.CALLED_OFF, Stage.OVER)


class PreemptionMetrics(Collector):
    """Counts preemptions as they end. Labels are bounded: causes, ends, and the parts of a preemption."""

    def __init__(self, controller: ControllerView, registry: CollectorRegistry) -> None:
        self._controller = controller
        preemptions = controller.preemptions
        # Kept in memory, because the exporter's thread cannot read the journal.
        self._asked_s: dict[int, float] = {}
        """Preemption → time of its request. Bound: those of the hour before the newest."""
        for row in preemptions.since(controller.clock.now() - HOUR_S):
            self._note_cost(row)
        self._ended = Counter(
            "headway_preemptions", "Preemptions that have ended, by cause and outcome", ["cause", "end"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "headway_preemption_seconds",
            "Time from the request to the save, from the save to the stop, to the next start, to its first step; "
            "and from the request to that step",
            ["part"], registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        for cause in Cause:
            for end in _ENDS:
                self._ended.labels(cause.value, _label(end))
        preemptions.listeners.append(self._on_change)
        registry.register(self)

    def _on_change(self, row: Preemption) -> None:
        self._note_cost(row)
        if row.open:
            return
        self._ended.labels(row.cause.value, _label(row.stage)).inc()
        for part, seconds in parts(row):
            self._seconds.labels(part).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        rows = list(self._controller.preemptions.open.values())
        yield GaugeMetricFamily("headway_preemptions_open", "Preemptions that are under way", value=float(len(rows)))
        yield from self._of_budget()

    def _note_cost(self, row: Preemption) -> None:
        """Note a preemption that counts against the budget, and forget those that no longer do."""
        if row.cause in BY_ITSELF:
            now_s = self._controller.clock.now()
            lately = {number: asked_s for number, asked_s in self._asked_s.items() if abs(now_s - asked_s) < HOUR_S}
            self._asked_s = {**lately, row.number: row.asked_s}  # replaced, because the exporter's thread reads it

    def _of_budget(self) -> Iterator[Metric]:
        now_s = self._controller.clock.now()
        spent = sum(abs(now_s - asked_s) < HOUR_S for asked_s in self._asked_s.values())
        most = self._controller.settings.preemption_budget_per_hour
        yield gauge(
            "headway_preemption_budget", "Preemptions by policies and the threshold that an hour may have", most
        )
        yield gauge("headway_preemption_budget_left", "Further ones that may begin now", max(most - spent, 0))


def parts(row: Preemption) -> Iterator[tuple[str, float]]:
    """Yield how long each finished part took, in seconds; never below 0, even when a clock was set back."""
    ways = (
        ("save", row.asked_s, row.saved_s),
        ("stop", row.saved_s if row.saved_s is not None else row.asked_s, row.stopped_s),
        ("place", row.stopped_s, row.started_s),
        ("resume", row.started_s, row.resumed_s),
        ("whole", row.asked_s, row.resumed_s),
    )
    for part, begin_s, end_s in ways:
        if begin_s is not None and end_s is not None:
            yield part, max(end_s - begin_s, 0.0)


def _label(stage: Stage) -> str:
    return stage.value.replace(" ", "_")
