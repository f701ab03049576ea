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
    """Return the share of jobs with several GPUs on one node that inherited their GPUs from one other such job.

    That is: no job has started on the node since a job ended that had at least as many GPUs of it. Chosen; the paper does not say
    how it counts. None where runs were not recorded.
    """
    if result.spans is None:
        return None
    found = [again for _, events in groupby(_events(result.spans), key=itemgetter(0)) for again in _inherited(events)]
    return float(np.mean(found)) if found else None


def _theirs(result: Result, models: Collection[str]) -> BoolColumn:
    return np.isin(np.array(result.model), list(models)) & (result.num_gpus > 1)


def _events(spans: Spans) -> list[tuple[int, int, int, int, bool]]:
    """Return (node, time, end or start, GPUs, whether the whole job is on the node), sorted in that order."""
    alone = np.diff(spans.offset) == 1
    rows = [
        (int(spans.nodes[part]), int(moment), kind, int(spans.counts[part]), bool(alone[run]))
        for part, run in enumerate(spans.run_of_part.tolist())
        for moment, kind in ((spans.start[run], _START), (spans.end[run], _END))
    ]
    return sorted(rows)


def _inherited(events: Iterator[tuple[int, int, int, int, bool]]) -> Iterator[bool]:
    """Yield for every job of several GPUs that starts on this node alone, whether it inherits them."""
    left = 0
    for _, _, kind, gpus, alone in events:
        if kind == _END:
            left = max(left, gpus if gpus > 1 else 0)
            continue
        if gpus > 1 and alone:
            yield gpus <= left
        left = 0
