"""The range of jobs and clusters on which weights were trained, and how a state leaves it.

A card records the smallest and the largest value of each quantity in `QUANTITIES` over training traces. A state is outside where a
quantity is beyond them; durations, the queue and waits, which differ by factors even within a training, by more than the factor
`SLACK`. A load is a rate, which one state does not show: the card has it for its readers, and the length of the queue shows it in
a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, FloatColumn, IntColumn, Split

GPUS_PER_JOB, DURATION_S, LOAD, QUEUE = "gpus_per_job", "duration_s", "load", "queue"
WAIT_S, ELASTIC_SHARE = "wait_s", "elastic_share"
NODES, GPUS_PER_NODE = "nodes", "gpus_per_node"
QUANTITIES = (GPUS_PER_JOB, DURATION_S, LOAD, QUEUE, WAIT_S, ELASTIC_SHARE, NODES, GPUS_PER_NODE)
"""Requested GPUs of a job; its run time alone, seconds; work over capacity; number of waiting jobs; seconds that a job waits; share
of the jobs that may have several sizes, for systems that resize; number of nodes; their GPUs."""
SLACK = 2.0
LEAST_WAIT_S = 3600.0
"""Waits up to this are never outside: a training whose jobs all start at once says nothing against a short wait."""
MOST_CHARS = 200
"""Length to which the remark is cut, as reasons are on the wire."""
TrainedRange: TypeAlias = Mapping[str, tuple[float, float]]
"""Smallest and largest value by quantity; empty if they are not known, as in the cards of earlier versions."""


def merged(ranges: Iterable[TrainedRange]) -> dict[str, tuple[float, float]]:
    """Return the smallest range that has all of these in it."""
    found: dict[str, tuple[float, float]] = {}
    for each in ranges:
        for name, (low, high) in each.items():
            least, most = found.get(name, (low, high))
            found[name] = min(low, least), max(high, most)
    return {name: found[name] for name in QUANTITIES if name in found}


def with_elastic_jobs(trained: TrainedRange) -> TrainedRange:
    """Return the range of a training whose environment resizes all jobs, whatever the traces say; an empty one stays empty."""
    return merged([trained, {ELASTIC_SHARE: (1.0, 1.0)}]) if trained else {}


def noted(trained: TrainedRange, state: ClusterState, decision: Decision) -> Decision:
    """Return the decision with a remark if the state is outside the range."""
    text = outside(trained, state)
    return replace(decision, outside=text) if text else decision


def outside(trained: TrainedRange, state: ClusterState) -> str:
    """Return how the state leaves the range, such as "3 of 40 jobs request 64 GPUs (trained: 1 to 32)"; empty if it does not."""
    if not trained:
        return ""
    jobs, nodes = state.jobs, state.nodes
    fewest, most = _sizes(state)
    # An elastic job runs for longer with fewer GPUs than it requests.
    requested = np.maximum(jobs.num_gpus, 1)
    durations = SLACK * most / requested, SLACK * requested / np.maximum(fewest, 1)
    parts = (
        _jobs("request", jobs.num_gpus, trained.get(GPUS_PER_JOB), (1.0, 1.0), "GPUs"),
        _jobs("are expected to run for", jobs.duration_estimate_s, trained.get(DURATION_S), durations, "s"),
        _most("jobs wait", len(state.pending), trained.get(QUEUE)),
        _longest_wait(state, trained.get(WAIT_S)),
        _fixed(state, trained.get(ELASTIC_SHARE)),
        _shape("nodes", len(nodes), len(nodes), trained.get(NODES)),
        *([_shape("GPUs on a node", *_ends(nodes.gpus), trained.get(GPUS_PER_NODE))] if len(nodes) else []),
    )
    text = "; ".join(filter(None, parts))
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."


def _sizes(state: ClusterState) -> tuple[IntColumn, IntColumn]:
    """Return the fewest and most GPUs of each job."""
    jobs = state.jobs
    is_fixed = jobs.split == int(Split.FIXED)
    low, high = (np.where(is_fixed, jobs.num_gpus, column) for column in jobs.sizes)
    return low, high


def _jobs(
    verb: str,
    values: IntColumn | FloatColumn,
    bounds: tuple[float, float] | None,
    slacks: tuple[float | FloatColumn, float | FloatColumn],
    unit: str,
) -> str:
    """Return the remark on the jobs that are below or above the range by more than these factors."""
    if bounds is None:
        return ""
    low, high = bounds
    beyond = (values * slacks[0] < low) | (values > high * slacks[1])  # False for an unknown value, which is NaN
    count = int(beyond.sum())
    if not count:
        return ""
    least, most = _ends(values[beyond])
    text = _span(least, most)
    return f"{count} of {len(values)} jobs {verb} {text} {unit} (trained: {_span(low, high)})"


def _most(what: str, count: int, bounds: tuple[float, float] | None) -> str:
    if bounds is None or count <= bounds[1] * SLACK:
        return ""
    return f"{count} {what} (trained: up to {bounds[1]:g})"


def _longest_wait(state: ClusterState, bounds: tuple[float, float] | None) -> str:
    jobs, waiting = state.jobs, state.pending
    if bounds is None or not len(waiting):
        return ""
    longest_s = float(np.max(state.time_s - jobs.submit_time_s[waiting] - jobs.service_s[waiting]))
    if longest_s <= max(bounds[1] * SLACK, LEAST_WAIT_S):
        return ""
    return f"a job has waited for {longest_s:,.0f} s (trained: up to {bounds[1]:,.0f})"


def _fixed(state: ClusterState, bounds: tuple[float, float] | None) -> str:
    """Return the remark on jobs of one size; more of them may be elastic than in the training."""
    if bounds is None or not len(state.jobs):
        return ""
    low, high = _sizes(state)
    count = int((low == high).sum())
    most = 1.0 - bounds[0]
    if count <= most * len(state.jobs):
        return ""
    return f"{count} of {len(state.jobs)} jobs have a fixed size (trained: {f'up to {most:.0%}' if most else 'none'})"


def _shape(what: str, least: float, most: float, bounds: tuple[float, float] | None) -> str:
    if bounds is None or bounds[0] <= least <= most <= bounds[1]:
        return ""
    return f"{_span(least, most)} {what} (trained: {_span(*bounds)})"


def _ends(values: IntColumn | FloatColumn) -> tuple[float, float]:
    return float(np.min(values)), float(np.max(values))


def _span(low: float, high: float) -> str:
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
