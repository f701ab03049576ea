"""Shortest job first: waiting jobs by estimated duration; running jobs are never stopped.

Source: W. E. Smith, "Various optimizers for single-stage production", Naval Research Logistics Quarterly 3, 1956; the
baseline of the same name in Tiresias (Gu et al., NSDI 2019).
"""

from __future__ import annotations

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.selection import by, fill


class Sjf:
    """Waiting jobs by estimated whole duration, shortest first; without an estimate, last."""

    spec = PolicySpec(
        name="sjf",
        source="Shortest job first (Smith 1956)",
        needs=frozenset({"duration_estimate"}),
    )

    def decide(self, state: ClusterState) -> Decision:
        """Start, shortest first, every waiting job that fits when its turn comes."""
        estimate = state.jobs.duration_estimate_s
        return fill(state, by(np.where(np.isnan(estimate), np.inf, estimate), state.pending))
