"""Random order: the control that uses no information, and shows what the cluster and its placement rule do by themselves.

The order is a hash of seed and job id: every order of the jobs is equally likely, jobs keep theirs as long as they wait, and
the same state gives the same decision.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, IntColumn
from policies.options import layout_named, whole
from policies.placement.rules import placement_rule
from policies.selection import fill


class Random:
    """Starts jobs in random order, drawn once for each job from `seed`; skips jobs that do not fit."""

    spec = PolicySpec(name="random", source="Random order (control)")

    def __init__(self, seed: int = 0, layout: str = "consolidated") -> None:
        """Jobs are placed by consolidated best fit, or with `layout="anywhere"` also on scattered GPUs."""
        self._seed = whole("seed", seed)
        self._placing = placement_rule(layout_named(layout))

    def decide(self, state: ClusterState) -> Decision:
        """Start every waiting job that fits when its turn comes."""
        return fill(state, shuffled(state, self._seed), placing=self._placing)


def shuffled(state: ClusterState, seed: int) -> IntColumn:
    """Return the rows of the waiting jobs in the random order of that seed."""
    salt, ids = seed.to_bytes(8, "little", signed=True), state.jobs.ids
    drawn = [blake2b(ids[row].encode(), digest_size=8, key=salt).digest() for row in state.pending.tolist()]
    return state.pending[np.argsort(np.array(drawn, dtype="S8").view(">u8"), kind="stable")]
