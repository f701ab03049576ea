"""Learned policies that name GPUs, in whole runs: jobs get those that are named, also after a stop or a failure of their node."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from policies.api import Decision, Policy
from policies.learned.marl.policy import Marl
from policies.learned.rl_taps.cluster import CLUSTER
from policies.learned.rl_taps.policy import RlTaps
from policies.model import ClusterState
from simulator.cluster.cluster import cluster_of
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.traces.trace import Trace
from tests.unit.simulator.engine.build import trace_of


class Noting:
    """Decides as a policy does, and checks in the next state that the jobs have the GPUs that were named."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.spec = policy, policy.spec
        self.named: dict[str, dict[int, int]] = {}
        """Job id → node → GPUs."""
        self.counts = Counter[str]()
        self._before: dict[str, dict[int, int]] = {}

    def decide(self, state: ClusterState) -> Decision:
        """Check, and decide."""
        jobs = state.jobs
        held = {}
        for row in state.running.tolist():
            there = slice(*jobs.placement_offset[row : row + 2].tolist())
            held[jobs.ids[row]] = dict(
                zip(jobs.placement_node[there].tolist(), jobs.placement_gpu_mask[there].tolist(), strict=True)
            )
            assert held[jobs.ids[row]] == self.named[jobs.ids[row]]
        self.counts["checked"] += len(held)
        self.counts["again"] += sum(self._before.get(job, gpus) != gpus for job, gpus in held.items())
        self._before |= held
        decision = self.policy.decide(state)
        for row, placement in decision.allocation.items():
            if placement.gpu_masks:
                self.named[jobs.ids[row]] = dict(zip(placement.nodes, placement.gpu_masks, strict=True))
                self.counts["as the agent chose"] += "not all of its GPUs" not in decision.reasons[row]
        return decision


def jobs_of(seed: int, count: int, most: int) -> Trace:
    draw = random.Random(seed)
    return trace_of(
        *((draw.uniform(0, 20 * count), draw.choice((1, 1, 2, most)), draw.uniform(50, 400)) for _ in range(count))
    )


NODE_FAILS = (NodeChange(200.0, 0, "down"), NodeChange(400.0, 0, "up"))


@pytest.mark.parametrize("seed", range(3))
def test_the_jobs_of_rl_taps_have_the_gpus_that_it_names(seed: int) -> None:
    trace, policy = jobs_of(seed, 40, 12), Noting(RlTaps(gpus="named"))
    elastic = replace(trace, min_gpus=np.ones(40, dtype=np.int64), max_gpus=np.full(40, 32))
    Simulation(elastic, cluster_of(CLUSTER), policy, Settings(preempt_cost_s=10.0, changes=NODE_FAILS)).run()
    assert policy.counts["checked"] > 100 and policy.counts["again"] > 3
    assert policy.counts["as the agent chose"] > 20


@pytest.mark.parametrize("seed", range(3))
def test_the_jobs_of_marl_have_the_gpus_that_it_names(seed: int) -> None:
    nodes = 'nodes = [{count = 8, gpus = 4, sockets = 2, rack = "r0"}, {count = 4, gpus = 6, sockets = 2, rack = "r1"}]'
    policy = Noting(Marl(groups="sockets"))
    Simulation(jobs_of(seed, 60, 4), cluster_of(tomllib.loads(nodes)), policy, Settings(changes=NODE_FAILS)).run()
    assert policy.counts["checked"] > 100 and policy.counts["again"]
