"""Runs that begin in the middle of a trace, on a cluster as full as it was then.

A rule, such as srtf, runs the jobs that are submitted before. At the begin every policy gets a copy of that cluster: the same jobs
run on the same nodes, and the same jobs wait, with their age, the service that they have attained and the work that is left. From
then on the policy decides. The run ends when every job has finished, also those that were there at the begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from policies.api import Policy
from policies.model import IntColumn
from simulator.engine.simulation import Simulation
from simulator.results.result import Result
from simulator.traces.trace import Trace

RULE = "srtf"
"""Policy that runs the jobs before a part, unless another is given."""
WARM_UP = 0.1
"""Share of a trace's jobs that fill the cluster, where the whole trace is run."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive jobs of a trace: rows `begin` to `end` - 1. Invariant: the row before `begin` was submitted earlier."""

    begin: int
    end: int

    def text(self) -> str:
        """Return the part in words; jobs are counted from 1."""
        return f"jobs {self.begin + 1:,} to {self.end:,}"


def parts_of(trace: Trace, first: int, count: int) -> list[Part]:
    """Return about `count` parts of about as many jobs each, from row `first` on to the end of the trace.

    Jobs of one instant are never divided; so there may be fewer parts, and the first may begin earlier.
    """
    rows = np.linspace(first, len(trace), max(count, 1) + 1).round().astype(np.int64)[:-1]
    begins = np.unique(np.searchsorted(trace.submit_ns, trace.submit_ns[np.minimum(rows, len(trace) - 1)], side="left"))
    ends = [*begins[1:].tolist(), len(trace)]
    return [Part(begin, end) for begin, end in zip(begins.tolist(), ends, strict=True)]


def next_instant(trace: Trace, row: int) -> int:
    """Return the first row from that one on which was submitted later than the row before it; the number of jobs if none was."""
    if not 0 < row < len(trace):
        return row
    return int(np.searchsorted(trace.submit_ns, trace.submit_ns[row - 1], side="right"))


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A cluster at the instant at which a part of a trace begins. Invariant: no run changes `at`; each gets a copy."""

    at: Simulation
    part: Part

    @classmethod
    def of(cls, rule: Simulation, part: Part) -> Self:
        """Let the rule run the jobs before that part, and return a copy of its cluster then."""
        rule.pause(int(rule.trace.submit_ns[part.begin]))
        return cls(rule.fork(), part)

    def simulation(self, policy: Policy) -> Simulation:
        """Return a run of that policy from here on, which begins with the first submission of the part."""
        made = self.at.fork(policy)
        made.end_arrivals(self.part.end)
        return made

    def result(self, ended: Simulation, policy: str, wall_s: float, *, dropped: int = 0) -> Result:
        """Return the result of such a run that has ended: its jobs are those that were there, then those of the part."""
        jobs, begin_ns = self.at.jobs(), self.at.loop.now
        rows: IntColumn = np.array(
            [*(job.index for job in jobs), *range(self.part.begin, self.part.end)], dtype=np.int64
        )
        found = Result.of(ended, policy, wall_s, dropped=dropped).take(rows)
        before = {field: _padded([getattr(job, name) for job in jobs], len(rows)) for name, field in _COUNTED.items()}
        count = len(jobs)
        submit, duration = found.submit_ns.copy(), found.duration_ns.copy()
        submit[:count] = begin_ns
        duration[:count] = [max(job.left, 1) for job in jobs]
        return replace(
            found,
            **{field: getattr(found, field) - column for field, column in before.items()},
            submit_ns=submit,
            duration_ns=duration,
            decisions=found.decisions - self.at.decisions,
            carried=count,
        )


_COUNTED = {
    **{name: f"{name}_ns" for name in ("service", "wait", "lost")},
    "overhead_served": "overhead_ns",
    "attained": "attained_gpu_ns",
    **{name: name for name in ("stops", "moves", "resizes", "failures")},
}
"""Attributes of a job that add up over its life, and the columns of a result that have them."""


def warm_starts(rule: Simulation, parts: Sequence[Part]) -> Iterator[WarmStart]:
    """Yield the start of each part, in order; the rule runs the trace once, from its first job on."""
    for part in parts:
        yield WarmStart.of(rule, part)


def _padded(values: Sequence[int], length: int) -> IntColumn:
    column = np.zeros(length, dtype=np.int64)
    column[: len(values)] = values
    return column
