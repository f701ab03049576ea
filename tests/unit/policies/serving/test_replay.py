"""Policies against the reference simulator: the same decision at every instant of random traces."""

from __future__ import annotations

from fractions import Fraction

import pytest

from policies.api import Policy, load_policy
from policies.model import ClusterState
from tests.reference.cluster import Cluster
from tests.reference.generate import random_trace
from tests.reference.loop import apply, next_instant
from tests.reference.model import Active
from tests.reference.model import Job as TraceJob
from tests.reference.policies import FIRST_LEVEL, POLICIES, WITH_ROUNDS, decide
from tests.unit.policies.states.cluster import Job, Node, cluster

ROUND_S = 300
SHAPES = ((1, 4), (3, 4), (5, 2), (4, 8))


def as_state(active: list[Active], reference: Cluster, now: Fraction) -> ClusterState:
    """The state of the reference's jobs for a policy; rows in order of submission."""
    rows = [
        Job(
            gpus=each.job.gpus,
            occupied=each.nodes or None,
            estimate_s=float(each.service + each.left),
            service_s=float(each.service),
            attained_gpu_s=float(each.attained),
            preemptible=each.job.preemptible,
        )
        for each in active
    ]
    return cluster([Node(gpus=reference.gpus_per_node)] * reference.nodes, rows, time_s=float(now))


def replay(policy: Policy, name: str, jobs: list[TraceJob], reference: Cluster, preempt_cost: int = 0) -> int:
    """Run the reference; at each of its decisions the policy must want the same. Returns how many there were."""
    in_order = sorted(jobs, key=lambda job: job.submit)
    to_come = [Active(index, job, left=Fraction(job.duration)) for index, job in enumerate(in_order)]
    active: list[Active] = []
    now, decisions = Fraction(0), 0
    while to_come or active:
        before, now = now, next_instant(to_come, active, now, ROUND_S if name in WITH_ROUNDS else None)
        for each in active:
            if each.runs:
                each.run_for(now - before)
        active = [each for each in active if not (each.runs and each.run_time_left == 0)]
        active += [each for each in to_come if each.job.submit == now]
        to_come = [each for each in to_come if each.job.submit > now]
        wanted = decide(name, active, reference, now)
        got = policy.decide(as_state(active, reference, now))
        allocation = {active[row].index: dict(placement.items()) for row, placement in got.allocation.items()}
        assert allocation == wanted, f"at {float(now)} s"
        apply(wanted, active, now, Fraction(preempt_cost))
        decisions += 1
    return decisions


@pytest.mark.parametrize("layout", ["consolidated", "anywhere"])
@pytest.mark.parametrize("name", POLICIES)
def test_every_decision_of_a_trace_is_that_of_the_reference(name: str, layout: str) -> None:
    options = {} if name.endswith("-count") else {"layout": layout}
    levels = {"first_level_gpu_s": FIRST_LEVEL} if name == "las-levels" else {}
    policy = load_policy("las" if levels else name, options | levels)
    placement = "consolidated" if layout == "consolidated" else "any"
    for seed in range(8):
        nodes, gpus = SHAPES[seed % len(SHAPES)]
        trace = random_trace(seed, 30, nodes, gpus, pinned_share=0.2 if seed % 3 == 2 else 0.0)
        assert replay(policy, name, trace, Cluster(nodes, gpus, placement), preempt_cost=17 * (seed % 2)) >= 12
