"""The rules for every decision, checked job by job and node by node. Shares no code with the policies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policies.api import Decision, Policy, PolicySpec
from policies.model import ClusterState, JobState, Placement, Split


def check(state: ClusterState, decision: Decision, spec: PolicySpec, *, moves: bool = False) -> None:
    """Check that gangs are whole, jobs are where they may be, no GPU is used twice, and only preemptible jobs stop or move."""
    jobs = state.jobs
    started = {row: placement for row, placement in decision.allocation.items() if not runs(state, row)}
    if moves and spec.preempts:
        started |= {
            row: placement
            for row, placement in decision.allocation.items()
            if runs(state, row) and jobs.preemptible[row] and placement != jobs.placement(row)
        }
    for row in range(len(jobs)):
        if runs(state, row):
            stays = not (spec.preempts and jobs.preemptible[row])
            assert row in decision.allocation or not stays, f"job {row} must not be stopped"
            if row in decision.allocation and row not in started:
                assert decision.allocation[row] == jobs.placement(row), f"job {row} is moved"
    for row, placement in started.items():
        check_shape(state, row, placement)
    for node in {node for placement in started.values() for node in placement.nodes}:
        check_node(state, decision, started, node)
    assert sorted(decision.queue) == state.pending.tolist()
    for row in started:
        assert 0 < len(decision.reasons[row]) <= 200


def check_starts(state: ClusterState, started: dict[int, Placement]) -> None:
    """Check that these waiting jobs may start there, beside all jobs that run."""
    held = {row: placement for row in state.running.tolist() if (placement := state.jobs.placement(row))}
    for row, placement in started.items():
        check_shape(state, row, placement)
    decision = Decision(held | started)
    for node in {node for placement in started.values() for node in placement.nodes}:
        check_node(state, decision, started, node)


def runs(state: ClusterState, row: int) -> bool:
    return bool(state.jobs.state[row] == JobState.RUNNING)


def check_shape(state: ClusterState, row: int, placement: Placement) -> None:
    jobs = state.jobs
    assert placement.num_gpus == jobs.num_gpus[row], f"job {row} starts in part"
    assert list(placement.nodes) == sorted(set(placement.nodes)) and min(placement.gpus) > 0
    assert jobs.min_nodes[row] <= len(placement.nodes) <= jobs.max_nodes[row]
    for node in placement.nodes:
        assert state.nodes.available[node]
        assert jobs.node_set[row] < 0 or state.node_sets[jobs.node_set[row], node]
    if jobs.split[row] == Split.EVEN:
        assert len(set(placement.gpus)) == 1
    if jobs.split[row] == Split.FIXED:
        assert set(placement.gpus) == {jobs.gpus_per_node[row]} and len(placement.nodes) == jobs.min_nodes[row]


def check_node(state: ClusterState, decision: Decision, started: dict[int, Placement], node: int) -> None:
    """Check that a node on which a job starts has enough of the resources that its new jobs request."""
    nodes, jobs = state.nodes, state.jobs
    here = {
        row: dict(placement.items())[node] for row, placement in decision.allocation.items() if node in placement.nodes
    }
    new = [row for row in here if row in started]
    assert sum(here.values()) + nodes.foreign_gpus[node] <= nodes.gpus[node], f"node {node} is overcommitted"
    if any(jobs.exclusive[row] for row in here):
        assert len(here) == 1, f"node {node} is shared with an exclusive job"
    if any(jobs.exclusive[row] for row in new):
        assert not (nodes.foreign_gpus[node] or nodes.foreign_cpus[node] or nodes.foreign_memory_mib[node])
    cpus = sum(gpus * jobs.cpus_per_gpu[row] for row, gpus in here.items()) + nodes.foreign_cpus[node]
    memory = sum(gpus * jobs.memory_mib_per_gpu[row] for row, gpus in here.items()) + nodes.foreign_memory_mib[node]
    if nodes.cpus[node] and any(jobs.cpus_per_gpu[row] for row in new):
        assert cpus <= nodes.cpus[node] + 1e-6
    if nodes.memory_mib[node] and any(jobs.memory_mib_per_gpu[row] for row in new):
        assert memory <= nodes.memory_mib[node] + 1e-3


def check_resizing(policy: Policy, state: ClusterState, *, settled: Callable[[int], bool]) -> None:
    """Check a policy that resizes: sizes are in the ranges, nodes exist, and running jobs keep their GPUs until they have run
    long enough."""
    decision = policy.decide(state)
    assert decision == policy.decide(state)
    jobs, (low, high) = state.jobs, state.jobs.sizes
    started = {}
    for row, placement in decision.allocation.items():
        if placement != jobs.placement(row):
            started[row] = placement
            assert low[row] <= placement.num_gpus <= high[row]
            assert state.nodes.available[list(placement.nodes)].all()
            assert decision.reasons[row]
    for row in state.running.tolist():
        if not jobs.preemptible[row] or not settled(row):
            assert decision.allocation[row] == jobs.placement(row)
    for node in {node for placement in started.values() for node in placement.nodes}:
        check_node(state, decision, started, node)
    assert decision.queue == tuple(np.flatnonzero(jobs.state == JobState.PENDING))
