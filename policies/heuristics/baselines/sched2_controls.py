"""The controls of SCHED2: simple rules that use locality, which the paper's baselines do not.

The paper's agent is compared with six rules that start every job that fits, even scattered. These two rules show how much of its
gain needs no learning. They have its placement (packing), its window and its profiles, and one idea each:

- `sched2-spf-local`: smallest product first, and a job that would lose speed by being scattered waits until it would not;
- `sched2-delay`: delay scheduling (Zaharia et al., EuroSys 2010): shortest first, and a job that would lose speed waits, but not
  for ever. It has waited enough when its whole wait is `patience` times what it would lose. The default was found on training
  traces (`python -m simulator.papers.sched2.reproduction.patience`): there the more patience the better, and beyond 16 nothing
  changes.

Both use the profile of the job (`policies.placement.locality_tiers`): a job of more GPUs than a node has loses nothing on more
nodes of a rack, and is never delayed; a job without a profile loses nothing. Jobs are never stopped. A job that waits for
locality reserves nothing: others pass it, and while small jobs keep arriving no node becomes free for it. These controls do nothing
against that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.heuristics.baselines.sched2 import ideal_s
from policies.model import ClusterState, Placement
from policies.options import number, whole
from policies.ordering.greedy import Greedy, fixed
from policies.placement.best_fit import Capacity
from policies.placement.locality_tiers import relative_speed, speeds
from policies.placement.paper_rules import PACKING

_SOURCE = "control for SCHED2 (Luan et al., GLOBECOM 2019)"
_NEEDS = frozenset({"duration_estimate", "profile"})
SAME_SPEED = 1.0 - 1e-9
"""Share of its best speed from which on a job counts as losing nothing."""
PATIENCE = 16.0
"""A job waits for its best locality until it has waited this many times as long as it would lose."""


class Sched2SpfLocal:
    """Starts jobs with the smallest ideal time times GPUs first, but none where it would be slower than with its best locality."""

    spec = PolicySpec(name="sched2-spf-local", source=_SOURCE, needs=_NEEDS)

    def __init__(self, window: int = 0) -> None:
        """Only the first `window` waiting jobs are considered; 0 = all."""
        self._window = whole("window", window, least=0)
        self.spec = replace(type(self).spec, considers=window)

    def decide(self, state: ClusterState) -> Decision:
        """Start the least that fits and loses nothing, and so on."""
        known = speeds(state)

        def defer(capacity: Capacity, row: int, placement: Placement) -> str | None:
            speed = relative_speed(capacity, row, placement, known)
            return (
                None
                if speed >= SAME_SPEED
                else f"it would run at {speed:.0%} of its best speed; waits for nodes closer together"
            )

        return Greedy(PACKING, self._window, defer=defer).decide(state, fixed(ideal_s(state) * state.jobs.num_gpus))


class Sched2Delay:
    """Starts the shortest jobs first, by ideal time; a job waits for a while if it would be slower than with its best locality."""

    spec = PolicySpec(
        name="sched2-delay", source=f"{_SOURCE}: delay scheduling (Zaharia et al., EuroSys 2010)", needs=_NEEDS
    )

    def __init__(self, window: int = 0, patience: float = PATIENCE) -> None:
        """Only the first `window` waiting jobs are considered (0 = all). A job waits for locality until it has waited `patience`
        times as long as it would lose."""
        self._window = whole("window", window, least=0)
        self.spec = replace(type(self).spec, considers=window)
        self._patience = number("patience", patience, unit="times what it would lose", positive=True)

    def decide(self, state: ClusterState) -> Decision:
        """Start the shortest that fits and need not wait, and so on."""
        known, ideal = speeds(state), ideal_s(state)
        waited = state.time_s - state.jobs.submit_time_s

        def defer(capacity: Capacity, row: int, placement: Placement) -> str | None:
            speed = relative_speed(capacity, row, placement, known)
            if speed >= SAME_SPEED or not np.isfinite(ideal[row]):
                return None
            enough = self._patience * float(ideal[row]) * (1.0 / speed - 1.0)
            left = enough - float(waited[row])
            return (
                None
                if left <= 0
                else f"it would run at {speed:.0%} of its best speed; waits at most {left:.0f} s more for nodes closer together"
            )

        return Greedy(PACKING, self._window, defer=defer).decide(state, fixed(ideal))
