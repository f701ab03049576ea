"""Fragmentation of the cluster over time, from the runs of jobs.

Equation 1 of SCHED2 (section II-B), for one node of n GPUs whose GPU i comes free in x_i seconds (0 where it is free):

    frag = 1 - (sum x_i)^2 / (n sum x_i^2)

0 where all GPUs come free together, up to 1 - 1/n where a single one is in use. A node with nothing but free GPUs has 0 / 0 there;
it counts as 0, for it can take any job. x_i is the time until the run on that GPU ended in fact, a stop included.

Between two changes on a node every x_i falls by one second a second. With a GPUs in use, v their mean time left and s^2 its
variance among them, frag = 1 - (a / n) v^2 / (v^2 + s^2), whose integral over time is exact:
of v^2 / (v^2 + s^2) it is v - s atan(v / s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.results.result import Spans
from simulator.traces.trace import NS_PER_S


@dataclass(frozen=True, eq=False)
class Fragmentation:
    """Fragmentation as mean over nodes, in each of `bins` equal parts of an interval."""

    bins: FloatColumn
    """Mean over nodes and over the bin."""

    @classmethod
    def of(cls, spans: Spans, node_gpus: IntColumn, begin_ns: int, end_ns: int, bins: int = 1) -> Self:
        """Compute fragmentation between these instants."""
        edges = np.linspace(begin_ns, end_ns, bins + 1).round().astype(np.int64)
        pieces = _Pieces.of(spans, edges)
        area = pieces.area_s(node_gpus)
        of_bin = np.clip(np.searchsorted(edges, pieces.begin, side="right") - 1, 0, bins - 1)
        total = np.bincount(of_bin, weights=area, minlength=bins)
        length = np.diff(edges) / NS_PER_S * len(node_gpus)
        return cls(np.divide(total, length, out=np.zeros(bins), where=length > 0))

    def mean(self) -> float:
        """Return the mean over the whole interval."""
        return float(self.bins.mean())


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Intervals during which no job starts or ends on a node, and the GPUs in use in each."""

    node: IntColumn
    begin: IntColumn
    end: IntColumn
    piece: IntColumn
    """The piece of every part of a run that occupies GPUs during it."""
    gpus: IntColumn
    free_at: IntColumn
    """Time at which those GPUs come free."""

    @classmethod
    def of(cls, spans: Spans, edges: IntColumn) -> Self:
        """Cut the time of each node at every change and at the edges."""
        run = spans.run_of_part
        first, last = int(edges[0]), int(edges[-1])
        start, end = spans.start[run], spans.end[run]
        kept = (end > first) & (start < last) & (end > start)
        node, gpus, free_at = spans.nodes[kept], spans.counts[kept], end[kept]
        start, stop = np.maximum(start[kept], first), np.minimum(end[kept], last)
        busy = np.unique(node)
        at_node = np.concatenate((node, node, np.repeat(busy, len(edges))))
        at_time = np.concatenate((start, stop, np.tile(edges, len(busy))))
        order = np.lexsort((at_time, at_node))
        at_node, at_time = at_node[order], at_time[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (at_node[1:] != at_node[:-1]) | (at_time[1:] != at_time[:-1])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.cumsum(new) - 1
        at_node, at_time = at_node[new], at_time[new]
        begin_place, end_place = place[: len(node)], place[len(node) : 2 * len(node)]
        covers = end_place - begin_place
        offset = np.concatenate(([0], np.cumsum(covers)))
        piece = np.arange(offset[-1]) - np.repeat(offset[:-1] - begin_place, covers)
        until = np.full(len(at_time), last, dtype=np.int64)
        until[:-1] = np.where(at_node[1:] == at_node[:-1], at_time[1:], last)
        return cls(at_node, at_time, until, piece, np.repeat(gpus, covers), np.repeat(free_at, covers))

    def area_s(self, node_gpus: IntColumn) -> FloatColumn:
        """Return the integral of frag over each piece, in seconds."""
        count = len(self.node)
        length = (self.end - self.begin) / NS_PER_S
        left = (self.free_at - self.begin[self.piece]) / NS_PER_S
        occupied = np.bincount(self.piece, weights=self.gpus, minlength=count)
        busy = occupied > 0
        safe = np.where(busy, occupied, 1.0)
        mean = np.bincount(self.piece, weights=self.gpus * left, minlength=count) / safe
        apart = (left - mean[self.piece]) ** 2
        spread = np.sqrt(np.bincount(self.piece, weights=self.gpus * apart, minlength=count) / safe)
        later = np.maximum(mean - length, 0.0)
        lost = spread * (np.arctan2(mean, spread) - np.arctan2(later, spread))
        n = node_gpus[self.node]
        return np.where(busy, length - occupied / n * (length - lost), 0.0)
