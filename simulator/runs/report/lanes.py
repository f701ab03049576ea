"""The GPUs of a node on which a run is drawn. The simulator counts GPUs and does not number them; a drawing must."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from policies.model import IntColumn
from simulator.results.result import Spans


@dataclass(frozen=True, eq=False)
class Bars:
    """Rectangles of a Gantt chart: so many GPUs from `lane` on; lanes number the GPUs of all nodes. Times in ns."""

    job: IntColumn
    start: IntColumn
    end: IntColumn
    lane: IntColumn
    gpus: IntColumn

    def __len__(self) -> int:
        return len(self.job)


def bars(spans: Spans, node_gpus: IntColumn, most: int) -> Bars:
    """Return every run on the lowest free lanes of its nodes; of more than `most` parts of runs, the longest."""
    run = spans.run_of_part
    start, end = spans.start[run], spans.end[run]
    kept = np.flatnonzero(end > start)
    if len(kept) > most:
        longest = np.argpartition(start[kept] - end[kept], most)[:most]
        kept = kept[longest]
    kept = kept[np.lexsort((start[kept], spans.nodes[kept]))]
    first_lane = np.concatenate(([0], np.cumsum(node_gpus)))
    rows: list[tuple[int, int, int, int, int]] = []
    columns = (spans.index[run], start, end, spans.nodes, spans.counts)
    present = -1
    for job, begin, finish, node, gpus in zip(*(column[kept].tolist() for column in columns), strict=True):
        if node != present:
            present = node
            lanes = _Lanes(int(node_gpus[node]), int(first_lane[node]))
        rows += [(job, begin, finish, lane, wide) for lane, wide in lanes.take(begin, finish, gpus)]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return Bars(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4])


class _Lanes:
    """The lanes of one node. Runs are added in order of their starts."""

    def __init__(self, gpus: int, first: int) -> None:
        self._first = first
        self._free = list(range(gpus))
        self._occupied: list[tuple[int, list[int]]] = []

    def take(self, begin: int, finish: int, gpus: int) -> list[tuple[int, int]]:
        """Return lanes for a run, as (first, number of adjacent lanes)."""
        while self._occupied and self._occupied[0][0] <= begin:
            self._free += heappop(self._occupied)[1]
        heapify(self._free)
        taken = [heappop(self._free) for _ in range(min(gpus, len(self._free)))]
        heappush(self._occupied, (finish, taken))
        groups: list[tuple[int, int]] = []
        for lane in taken:
            if groups and sum(groups[-1]) == lane + self._first:
                groups[-1] = groups[-1][0], groups[-1][1] + 1
            else:
                groups.append((lane + self._first, 1))
        return groups
