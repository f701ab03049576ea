"""The baselines of RL-TAPS: random, shortest job first and Tetris, which pick jobs from ten slots and take the first free GPUs.

Source: Ryu et al., "Towards Topology Aware Pre-Emptive Job Scheduling with Deep Reinforcement Learning" (RL-TAPS), CASCON
2020, section 5.3, after DeepRM (Mao et al., HotNets 2016), whose baselines and allocator it keeps. GPUs are
numbered node by node, and a job takes the first that are free (`policies.placement.paper_rules.FIRST_FIT`). Tetris picks the
job whose GPUs times the free GPUs are most: the largest.

The paper's allocator may also reserve GPUs for a later time step, and it does not say what happens to a chosen job that fits at
none. Here jobs start now or wait, and only jobs that fit can be picked, as in DeepRM. Slots are filled in order of arrival as
soon as one is free; jobs are never stopped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.heuristics.allocation.tetris import start_by_alignment
from policies.heuristics.baselines.sched2 import ideal_s
from policies.heuristics.orders.random_order import shuffled
from policies.model import ClusterState
from policies.options import whole
from policies.ordering.greedy import Greedy, fixed
from policies.placement.paper_rules import FIRST_FIT

_SOURCE = "RL-TAPS, section 5.3, baseline {}"
SLOTS = 10
"""N of the paper's section 5.1."""


class RlTapsSjf:
    """Starts the shortest of the jobs in `slots` on the first free GPUs."""

    spec = PolicySpec(name="rl-taps-sjf", source=_SOURCE.format("SJF"), needs=frozenset({"duration_estimate"}))

    def __init__(self, slots: int = SLOTS) -> None:
        """Jobs are picked from the first `slots` waiting jobs; 0 = all."""
        self._greedy = Greedy(FIRST_FIT, whole("slots", slots, least=0))
        self.spec = replace(type(self).spec, considers=slots)

    def decide(self, state: ClusterState) -> Decision:
        """Start the shortest that fits, and so on."""
        return self._greedy.decide(state, fixed(ideal_s(state)))


class RlTapsTetris:
    """Starts the largest of the jobs in `slots` on the first free GPUs."""

    spec = PolicySpec(name="rl-taps-tetris", source=_SOURCE.format("Tetris"))

    def __init__(self, slots: int = SLOTS) -> None:
        """Jobs are picked from the first `slots` waiting jobs; 0 = all."""
        self._slots = whole("slots", slots, least=0)
        self.spec = replace(type(self).spec, considers=slots)

    def decide(self, state: ClusterState) -> Decision:
        """Start the one that aligns best, and so on."""
        return start_by_alignment(state, FIRST_FIT, 0.0, self._slots)


class RlTapsRandom:
    """Starts a random job of those in `slots`, drawn from `seed`, on the first free GPUs."""

    spec = PolicySpec(name="rl-taps-random", source=_SOURCE.format("Random"))

    def __init__(self, seed: int = 0, slots: int = SLOTS) -> None:
        """Jobs are picked from the first `slots` waiting jobs; 0 = all."""
        self._seed = whole("seed", seed)
        self._greedy = Greedy(FIRST_FIT, whole("slots", slots, least=0))
        self.spec = replace(type(self).spec, considers=slots)

    def decide(self, state: ClusterState) -> Decision:
        """Start one that fits, and so on."""
        rank = np.zeros(len(state.jobs))
        rank[shuffled(state, self._seed)] = np.arange(len(state.pending))
        return self._greedy.decide(state, fixed(rank))
