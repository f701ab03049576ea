"""Discretized two-dimensional LAS: two queues by attained GPU-seconds, first in first out within each, preemptively.

Source: J. Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning", NSDI 2019, section 3.3. The queues keep
jobs of nearly equal service from preempting each other without end.
"""

from __future__ import annotations

import math

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.selection import active, by, select


class Tiresias:
    """Jobs below `threshold_gpu_s` GPU-seconds come first, the others after them; by submission within both."""

    def __init__(self, threshold_gpu_s: float = 3200.0, round_s: float = 300.0) -> None:
        """A job that has had `threshold_gpu_s` GPU-seconds moves to the second queue, looked at every `round_s` seconds."""
        if not (math.isfinite(threshold_gpu_s) and threshold_gpu_s > 0):
            raise ValueError(f"threshold_gpu_s is {threshold_gpu_s}; give GPU-seconds, more than 0")
        if not (math.isfinite(round_s) and round_s >= 0):
            raise ValueError(f"round_s is {round_s}; give seconds, 0 or more")
        self._threshold_gpu_s = float(threshold_gpu_s)
        self.spec = PolicySpec(
            name="tiresias",
            source="Discretized two-dimensional LAS (Tiresias, NSDI 2019)",
            preempts=True,
            round_s=float(round_s),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are paused."""
        second_queue = (state.jobs.attained_gpu_s >= self._threshold_gpu_s).astype(int)
        return select(state, by(second_queue, active(state)))
