"""A recorded run over time, as SCHED2 draws it (Luan et al., figure 9): fragmentation, and requested GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.errors import SettingError
from simulator.results.fragmentation import Fragmentation
from simulator.results.result import NOT_YET, Result
from simulator.traces.trace import NS_PER_S


@dataclass(frozen=True, eq=False)
class Timeline:
    """Means over equal parts of an interval, from the first submission on."""

    begin_s: FloatColumn
    """Begin of each part, seconds from the first submission."""
    fragmentation: FloatColumn
    """Equation 1, mean over nodes. Without runs that had not ended."""
    required_gpus: FloatColumn
    """Requested GPUs of jobs that have arrived and not started."""

    @classmethod
    def of(cls, result: Result, end_ns: int, bins: int) -> Self:
        """Return the timeline of a recorded run, until that instant of the trace's clock. Raises SettingError."""
        if result.spans is None:
            raise SettingError("this run was not recorded; give settings=Settings(record=True)")
        if bins < 1:
            raise SettingError(f"bins is {bins!r}; give at least 1")
        begin = int(result.submit_ns.min())
        edges = np.linspace(begin, end_ns, bins + 1)
        frag = Fragmentation.of(result.spans, result.node_gpus, begin, end_ns, bins)
        return cls((edges[:-1] - begin) / NS_PER_S, frag.bins, _required(result, edges))


def _required(result: Result, edges: FloatColumn) -> FloatColumn:
    """Return the mean requested GPUs of waiting jobs between every two edges; without waiting after a failure."""
    start = np.where(np.equal(result.first_start_ns, NOT_YET), np.iinfo(np.int64).max, result.first_start_ns)
    wanted: IntColumn = result.num_gpus
    area = np.array([(wanted * (np.clip(edge, result.submit_ns, start) - result.submit_ns)).sum() for edge in edges])
    length = np.diff(edges)
    return np.divide(np.diff(area), length, out=np.zeros(len(length)), where=length > 0)
