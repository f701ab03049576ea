"""The outcome of an episode, in the figures of `simulator.results.metrics`."""

from __future__ import annotations

import numpy as np

from simulator.engine.simulation import Simulation
from simulator.results import metrics
from simulator.results.result import Result

_NAN = float("nan")


def outcome(simulation: Simulation) -> dict[str, float]:
    """Return the figures by which schedulers are compared; NaN for undefined ones. JCT includes queueing."""
    result = Result.of(simulation, "agent", wall_s=0.0)
    jct_s = result.jct_ns / 1e9
    p50, p90, p99 = np.percentile(jct_s, (50, 90, 99)).tolist() if len(jct_s) else (_NAN, _NAN, _NAN)
    sensitivity = metrics.contention_sensitivity(result)
    figures: dict[str, float | None] = {
        "jobs": len(result),
        "finished": len(jct_s),
        "avg_jct_s": metrics.average_jct_s(result),
        "p50_jct_s": p50,
        "p90_jct_s": p90,
        "p99_jct_s": p99,
        "avg_service_s": metrics.average_service_s(result),
        "avg_wait_s": metrics.average_wait_s(result),
        "makespan_s": metrics.makespan_s(result),
        "utilization": metrics.utilization(result),
        "contention_sensitivity": float(sensitivity.mean()) if len(sensitivity) else None,
        "preemptions": int(result.stops.sum()),
        "effectiveness": metrics.effectiveness(result),
        "fragmentation": metrics.fragmentation(result),
    }
    return {name: _NAN if value is None else value for name, value in figures.items()}
