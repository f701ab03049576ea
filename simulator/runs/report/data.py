"""Data of one policy's run, from which the page draws; small enough to be embedded."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from simulator.cluster.topology import Topology
from simulator.results.fragmentation import Fragmentation
from simulator.results.metrics import Figure, slowdowns
from simulator.results.result import Result
from simulator.runs.report import lanes, steps
from simulator.runs.report.contention import heat, no_heat
from simulator.slowdown.api import SlowdownModel
from simulator.traces.trace import NS_PER_S, Trace

BINS = 360
QUANTILES = 240
MOST_BARS = 120_000
"""Maximum number of bars of one policy; they take a few megabytes."""
_TICKS = 2**32 - 1


def of_run(
    result: Result,
    figures: Mapping[str, Figure],
    trace: Trace,
    models: Sequence[SlowdownModel],
    topology: Topology,
) -> dict[str, object]:
    """Return curves, runs and contention of a recorded run; `trace` has the jobs of the result."""
    spans, series = result.spans, result.series
    assert spans is not None
    assert series is not None
    begin = int(result.submit_ns.min())
    end = begin + max(result.makespan_ns, BINS)
    edges = np.linspace(begin, end, BINS + 1).round().astype(np.int64)
    heated = heat(result, trace, models, topology)
    return {
        "name": result.policy,
        "figures": dict(figures),
        "assumptions": dict(result.assumptions),
        "begin": begin / NS_PER_S,
        "end": end / NS_PER_S,
        "jct": _quantiles(result.jct_ns / NS_PER_S),
        "slowdown": _quantiles(slowdowns(result)),
        "utilization": _rounded(steps.means(*spans.busy(), edges) / result.node_gpus.sum()),
        "fragmentation": _rounded(Fragmentation.of(spans, result.node_gpus, begin, end, BINS).bins),
        "queue": _rounded(steps.means(series.time, series.waiting, edges)),
        "heat": asdict(heated) if heated is not None else None,
        "no_heat": no_heat(trace, models),
        "gantt": _gantt(result, begin, end),
    }


def of_trace(trace: Trace, node_names: Sequence[str], node_gpus: Sequence[int]) -> dict[str, object]:
    """Return the data that all policies share: the jobs and the nodes."""
    models, users = sorted(set(trace.model)), sorted(set(trace.user))
    return {
        "name": trace.name,
        "ids": list(trace.job_ids),
        "submit": _packed(trace.submit_ns / NS_PER_S, "<f8"),
        "duration": _packed(trace.duration_ns / NS_PER_S, "<f8"),
        "gpus": _packed(trace.num_gpus, "<u4"),
        "models": models,
        "model": _packed(_places(models, trace.model), "<u4"),
        "users": users,
        "user": _packed(_places(users, trace.user), "<u4"),
        "nodes": list(node_names),
        "node_gpus": list(node_gpus),
    }


def _gantt(result: Result, begin: int, end: int) -> dict[str, object]:
    """Return the rectangles; times are shares of the whole run, in 32 bits."""
    assert result.spans is not None
    drawn = lanes.bars(result.spans, result.node_gpus, MOST_BARS)
    scale = _TICKS / (end - begin)
    return {
        "parts": len(result.spans.nodes),
        "job": _packed(drawn.job, "<u4"),
        "start": _packed(np.rint((drawn.start - begin) * scale), "<u4"),
        "end": _packed(np.rint((drawn.end - begin) * scale), "<u4"),
        "lane": _packed(drawn.lane, "<u4"),
        "gpus": _packed(drawn.gpus, "<u2"),
    }


def _places(names: Sequence[str], values: Sequence[str]) -> npt.NDArray[np.int64]:
    place = {name: at for at, name in enumerate(names)}
    return np.array([place[value] for value in values], dtype=np.int64)


def _packed(values: npt.NDArray[np.int64] | npt.NDArray[np.float64], kind: str) -> str:
    """Return the numbers in that binary form, as base64."""
    return base64.b64encode(values.astype(np.dtype(kind)).tobytes()).decode()


def _quantiles(values: npt.NDArray[np.float64]) -> list[float]:
    """Return the quantiles of a distribution at equally spaced shares."""
    if not len(values):
        return []
    place = np.linspace(0, len(values) - 1, QUANTILES)
    return _rounded(np.interp(place, np.arange(len(values)), np.sort(values)))


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    """Round to six digits, which is more than a screen shows."""
    return [float(f"{value:.6g}") for value in values.tolist()]
