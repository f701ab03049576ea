"""Locality of jobs, and whether a job inherited it from another job: table III of SCHED2 and related figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np

from policies.model import BoolColumn
from simulator.results.metrics import Figure
from simulator.results.result import Result, Spans
from simulator.traces.trace import NS_PER_S

_END, _START = 0, 1


def spread(result: Result) -> BoolColumn:
    """Return the jobs whose last run was on more nodes than necessary."""
    largest = int(result.node_gpus.max())
    fewest = -(-result.num_gpus // largest)
    on: BoolColumn = np.diff(result.placement_offset) > fewest
    return on


def relaxed(result: Result, models: Collection[str]) -> Figure:
    """Return the share of jobs of these models, with more than one GPU, that did not get the best locality."""
    theirs = _theirs(result, models)
    return float(spread(result)[theirs].mean()) if theirs.any() else None


def wait_s(result: Result, models: Collection[str]) -> Figure:
    """Return the average wait of jobs of these models, with more than one GPU."""
    theirs = _theirs(result, models)
    return float(result.wait_ns[theirs].mean()) / NS_PER_S if theirs.any() else None


def reused(result: Result) -> Figure:
    """Return the share of runs with several GPUs that inherited a good locality from other jobs with several GPUs.

    That is: the run is on as few nodes as possible, and on each of them no job has started since a job with several GPUs in all
    ended that had at least as many GPUs of that node. Chosen; the paper does not say how it counts. None where runs were not
    recorded.
    """
    spans = result.spans
    if spans is None:
        return None
    gpus = result.num_gpus[spans.index]
    fewest = -(-gpus // int(result.node_gpus.max()))
    several, local = gpus > 1, np.diff(spans.offset) <= fewest
    inherits = local.copy()
    for run, left in _left_for(spans, several):
        inherits[run] &= left
    return float(inherits[several].mean()) if several.any() else None


def _theirs(result: Result, models: Collection[str]) -> BoolColumn:
    return np.isin(np.array(result.model), list(models)) & (result.num_gpus > 1)


def _left_for(spans: Spans, several: BoolColumn) -> Iterator[tuple[int, bool]]:
    """Yield, for every run and each of its nodes, whether one job with several GPUs had just left as many there."""
    for _, events in groupby(_events(spans), key=itemgetter(0)):
        left = 0
        for _, _, kind, gpus, run in events:
            if kind == _END:
                left = max(left, gpus if several[run] else 0)
            else:
                yield run, gpus <= left
                left = 0


def _events(spans: Spans) -> list[tuple[int, int, int, int, int]]:
    """Return (node, time, end or start, GPUs, run), sorted in that order."""
    rows = [
        (int(spans.nodes[part]), int(moment), kind, int(spans.counts[part]), run)
        for part, run in enumerate(spans.run_of_part.tolist())
        for moment, kind in ((spans.start[run], _START), (spans.end[run], _END))
    ]
    return sorted(rows)
