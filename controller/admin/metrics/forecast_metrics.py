"""Metrics of the estimates of starts: how old they are, how long waits they expect, and how many earlier ones held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.metrics.families import counters, gauge, gauges
from controller.admin.metrics.wait_metrics import size_of
from controller.cycle.view.controller_view import ControllerView
from controller.forecast.service import StartForecasts


class ForecastMetrics(Collector):
    """Reads the newest estimates at each scrape. Runs in the exporter's thread, and changes nothing."""

    def __init__(self, controller: ControllerView, forecasts: StartForecasts) -> None:
        self._controller = controller
        self._forecasts = forecasts

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape."""
        forecasts = self._forecasts
        yield gauge(
            "headway_start_forecast_timestamp_seconds",
            "Time of the newest estimates of starts, Unix time; 0: there are none yet",
            forecasts.answered_s,
        )
        yield counters(
            "headway_start_ranges",
            "Estimates whose jobs have started, by whether the start was within the range",
            "held",
            {"yes": forecasts.held, "no": forecasts.missed},
        )
        yield gauges(
            "headway_start_forecast_wait_seconds",
            "Median of the waits that are expected from now on, by the size of the waiting jobs",
            "gpus",
            {size: median(waits_s) for size, waits_s in self._waits_s().items()},
        )

    def _waits_s(self) -> dict[str, list[float]]:
        """Return the expected waits of the jobs that have an estimate, by size."""
        found: dict[str, list[float]] = defaultdict(list)
        last = self._controller.last
        if last is None:
            return found
        state, rows = last.observation.state, last.observation.rows
        now_s = self._controller.clock.now()
        for row in state.pending.tolist():
            estimate = self._forecasts.of(rows[row].key)
            if estimate is not None:
                found[size_of(int(state.jobs.num_gpus[row]))].append(max(estimate.median_s - now_s, 0.0))
        return found
