"""The reward of a time span: the shares of their trainings that jobs have made in it, t_i / E_i (equation 1 of the paper).

The share of a job is, in this order:

- measured: its `progress`, which is the steps that agents report as a share of its `steps:N` (or epochs of its epochs);
- estimated: its service as a share of its estimated duration, as in the column e of the agent's state. It does not depend on the
  number of GPUs, so it only says that the job ran;
- unknown, if it has no estimate either.

When a job completes, what was missing to a whole training is added, whatever its kind.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from policies.api import Outcome
from policies.model import ClusterState

_MOST = 20_000
"""Running jobs that are followed; beyond that those go that have not been seen for longest."""
_MOST_ENDED = 4096
"""Ended jobs that are remembered: an outcome may be reported twice."""
_COMPLETED = "COMPLETED"
_SLACK_S = 2.0
"""Slurm's times are whole seconds, and the clocks of machines differ."""


@dataclass(slots=True)
class _Share:
    """Share of its training that a job has made, at most 1."""

    submit_time_s: float
    done: float
    measured: bool


class RewardMeter:
    """Adds up the rewards of the cluster. Invariants: `total` never falls; a job adds 1 to it at most, also if it makes steps again
    after a stop."""

    def __init__(self) -> None:
        self.total = 0.0
        """Sum of all shares so far."""
        self.estimated = 0.0
        """The part of `total` that was estimated."""
        self.unknown_s = -math.inf
        """Time of the last state in which a running job's share was unknown."""
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        """Bound: `_MOST`."""
        self._ended: OrderedDict[tuple[str, float], None] = OrderedDict()
        """Bound: `_MOST_ENDED`."""
        self._last_s = math.inf
        """Time of the state before; infinite before the first one, whose jobs have made their shares before."""

    def see(self, state: ClusterState) -> None:
        """Add what running jobs have made since the state before."""
        jobs = state.jobs
        nothing = np.full(len(jobs), np.nan)
        measured = nothing if jobs.progress is None else jobs.progress
        with np.errstate(divide="ignore", invalid="ignore"):
            by_time = np.clip(jobs.service_s / jobs.duration_estimate_s, 0.0, 1.0)
        for row in state.running.tolist():
            is_measured = not math.isnan(measured[row])
            share = float(measured[row] if is_measured else by_time[row])
            if math.isnan(share):
                self.unknown_s = state.time_s
                continue
            self._add(jobs.ids[row], _Share(float(jobs.submit_time_s[row]), share, is_measured), _began(state, row))
        self._last_s = state.time_s
        while len(self._shares) > _MOST:
            self._shares.popitem(last=False)

    def ended(self, outcome: Outcome) -> None:
        """Add what a completed job has made since it was last seen. A job that ended otherwise has made no more."""
        end = outcome.job_id, outcome.finish_time_s
        share = self._shares.pop(outcome.job_id, None)
        if end in self._ended:
            return
        self._ended[end] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        if outcome.final_state != _COMPLETED or not outcome.service_s > 0:
            return
        if share is not None:
            self.total += 1.0 - share.done
        elif outcome.start_time_s >= self._last_s - _SLACK_S:  # it ran between two states
            self.total += 1.0

    def _add(self, job_id: str, now: _Share, began_s: float) -> None:
        before = self._shares.get(job_id)
        if before is None or before.submit_time_s != now.submit_time_s:
            # A job that has begun before it could be seen made its share before, at a time that is not known.
            before = _Share(now.submit_time_s, 0.0 if began_s >= self._last_s - _SLACK_S else now.done, now.measured)
        elif before.measured != now.measured:
            # The two kinds cannot be compared: its first measured step does not undo what was estimated before.
            before = _Share(now.submit_time_s, max(before.done, now.done), now.measured)
        gained = max(now.done - before.done, 0.0)
        self.total += gained
        self.estimated += 0.0 if now.measured else gained
        now.done = before.done + gained
        self._shares[job_id] = now
        self._shares.move_to_end(job_id)


def _began(state: ClusterState, row: int) -> float:
    """Return the time at which the job began to run for the first time, at the latest; its runs so far end with the present one."""
    return state.time_s - float(state.jobs.service_s[row])
