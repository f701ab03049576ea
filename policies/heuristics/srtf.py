"""Shortest remaining time first: all active jobs by estimated remaining duration, preemptively.

Source: L. Schrage, "A proof of the optimality of the shortest remaining processing time discipline", Operations Research
16(3), 1968; for gangs of GPUs as in Tiresias (Gu et al., NSDI 2019).
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.selection import active, by, select


class Srtf:
    """Active jobs by remaining duration, least first; without an estimate, last."""

    spec = PolicySpec(
        name="srtf",
        source="Shortest remaining processing time (Schrage 1968)",
        preempts=True,
        needs=frozenset({"duration_estimate"}),
    )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs that are not selected are paused."""
        return select(state, by(state.remaining_s, active(state)))
