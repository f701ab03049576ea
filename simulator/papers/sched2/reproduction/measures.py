"""Figures of a run: the paper's metrics, fragmentation (equation 1), and those of sections IV-B and IV-C."""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn
from simulator.papers.sched2.reproduction import localities
from simulator.reproducing.experiment import METRICS, Metric
from simulator.results import metrics
from simulator.results.fragmentation import Fragmentation
from simulator.results.result import Result
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.traces.generators.sched2 import MODELS
from simulator.traces.trace import NS_PER_S

_SENSITIVE_BELOW = 0.5
"""Speed on two nodes relative to one, below which a model is sensitive to locality. The paper does not give its limit."""
_PARTS = 150
PERFORMANCE = ("avg_jct_s", "effectiveness", "makespan_s", "avg_wait_s", "avg_service_s", "fragmentation")
BEHAVIOUR = (
    "fragmentation",
    "fragmentation_growth",
    "relaxed_sensitive",
    "relaxed_insensitive",
    "relaxed_difference",
    "wait_sensitive_s",
    "wait_insensitive_s",
    "wait_ratio",
    "reused",
)
"""Figure 9, table III, and how often locality is reused."""


def sensitive(profiles: ModelProfiles) -> frozenset[str]:
    """Return the models that lose more than half of their speed on two nodes."""
    slow = (name for name in MODELS if (curve := profiles.models[name].locality) and curve[2] < _SENSITIVE_BELOW)
    return frozenset(slow)


def measures(profiles: ModelProfiles) -> dict[str, Metric]:
    """Return the metrics of every experiment, and those of figure 9 and table III."""
    lose = sensitive(profiles)
    keep = frozenset(MODELS) - lose
    return {
        **METRICS,
        "fragmentation": Metric(metrics.fragmentation, "fragmentation (equation 1)"),
        "fragmentation_growth": Metric(fragmentation_growth, "its growth while jobs arrive"),
        "relaxed_sensitive": Metric(lambda run: localities.relaxed(run, lose), "sensitive jobs without best locality"),
        "relaxed_insensitive": Metric(lambda run: localities.relaxed(run, keep), "insensitive jobs without it"),
        "relaxed_difference": Metric(
            lambda run: _difference(localities.relaxed(run, lose), localities.relaxed(run, keep)), "difference"
        ),
        "wait_sensitive_s": Metric(lambda run: localities.wait_s(run, lose), "wait of sensitive jobs"),
        "wait_insensitive_s": Metric(lambda run: localities.wait_s(run, keep), "wait of insensitive jobs"),
        "wait_ratio": Metric(
            lambda run: _ratio(localities.wait_s(run, lose), localities.wait_s(run, keep)), "ratio", lower=False
        ),
        "reused": Metric(localities.reused, "locality reused", lower=False),
    }


def fragmentation_growth(result: Result) -> float | None:
    """Return the relative change of fragmentation from the first to the second half of the time in which jobs arrive.

    The end of the trace, when the cluster empties, is left out. None where runs were not recorded.
    """
    if result.spans is None:
        return None
    begin, end = int(result.submit_ns.min()), int(result.submit_ns.max())
    first, second = Fragmentation.of(result.spans, result.node_gpus, begin, end, 2).bins.tolist()
    return second / first - 1.0 if first > 0 else None


def samples(result: Result) -> dict[str, FloatColumn]:
    """Return the data of figure 9: fragmentation, and the GPUs that waiting jobs request, over time (in hours)."""
    assert result.spans is not None
    begin = int(result.submit_ns.min())
    end = begin + result.makespan_ns
    at = np.linspace(begin, end, _PARTS + 1).round().astype(np.int64)[1:]
    # No job is stopped in this experiment: a job that was submitted and has not started is waiting.
    came, started = (_requested_gpus(times, result, at) for times in (result.submit_ns, result.first_start_ns))
    return {
        "hours": (at - begin) / NS_PER_S / 3600,
        "fragmentation": Fragmentation.of(result.spans, result.node_gpus, begin, end, _PARTS).bins,
        "required": came - started,
    }


def _requested_gpus(times: np.ndarray, result: Result, at: np.ndarray) -> FloatColumn:
    order = np.argsort(times, kind="stable")
    summed = np.concatenate(([0.0], np.cumsum(result.num_gpus[order].astype(np.float64))))
    found: FloatColumn = summed[np.searchsorted(times[order], at, side="right")]
    return found


def _difference(one: metrics.Figure, other: metrics.Figure) -> float | None:
    return None if one is None or other is None else one - other


def _ratio(one: metrics.Figure, other: metrics.Figure) -> float | None:
    return one / other if one is not None and other else None
