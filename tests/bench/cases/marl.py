"""MARL's schedulers on a large cluster: the time of placing one job, on 2,000 nodes in 20 racks, half of which are full.

One decision places a batch of jobs of 1 to 4 GPUs, as in the paper. The figure is its time by the clock, divided by its jobs.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import numpy as np

from policies.api import load_policy
from policies.model import ClusterState
from tests.bench.measuring.figures import Findings, spread
from tests.unit.policies.states.cluster import Job, Node, cluster

NODES, RACKS, GPUS = 2_000, 20, 4
JOBS = 300
"""Jobs of an interval of the paper, on 2,000 servers."""


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("marl")
    policy = load_policy("marl", {"guard": False})
    jobs = 20 if quick else JOBS
    taken_s = []
    for seed in range(2 if quick else 4):
        state = _state(jobs, seed)
        begun_s = time.perf_counter()
        started = len(policy.decide(state).allocation) - len(state.running)
        taken_s.append((time.perf_counter() - begun_s) / jobs)
        if started != jobs:
            raise RuntimeError(f"{started} of {jobs} jobs were placed")
    first, *later = taken_s
    findings.add("placing a job, 2,000 nodes, 20 schedulers", median(later) * 1e3, "ms", 50.0, spread(later))
    findings.add("the same, first decision", first * 1e3, "ms", note="with making the graphs")
    findings.keep("placing a job, s", taken_s)
    return findings


def _state(jobs: int, seed: int) -> ClusterState:
    rng = np.random.default_rng(seed)
    busy = [Job(gpus=GPUS, occupied={node: GPUS}) for node in range(0, NODES, 2)]
    state = cluster([Node(gpus=GPUS)] * NODES, [*busy, *(Job(gpus=int(rng.integers(1, 5))) for _ in range(jobs))])
    return replace(state, nodes=replace(state.nodes, rack=np.arange(NODES) * RACKS // NODES))
