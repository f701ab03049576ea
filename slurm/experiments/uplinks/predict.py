"""Predictions of the simulator for the same jobs on the same cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.observe.shape import JobShape, shape_of
from controller.slurm.model.job import ResourceRequest
from policies.api import Decision, Policy, load_policy, parse_policy
from policies.model import ClusterState, IntColumn, Placement, Split
from policies.state.ring_reduction import RingTime
from simulator.cluster.cluster import Cluster
from simulator.cluster.topology import rack_tree
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S, Trace
from slurm.experiments.uplinks import mix
from slurm.experiments.uplinks.mix import Job
from slurm.experiments.uplinks.summary import Turn


class AsSubmitted:
    """A policy between the controller and Slurm, as both treat `--gpus=N`.

    The controller offers a job in equal parts where there are any; otherwise Slurm divides its GPUs among the nodes that the policy
    has chosen. A job that does not fit on its nodes after that waits until the next decision.
    """

    def __init__(self, policy: Policy) -> None:
        self.spec = policy.spec
        self._policy = policy

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision, with the parts that Slurm makes of it."""
        shapes = [_shape(gpus) for gpus in state.jobs.num_gpus.tolist()]
        jobs = replace(
            state.jobs,
            split=_column([int(shape.split) for shape in shapes]),
            min_nodes=_column([shape.min_nodes for shape in shapes]),
            max_nodes=_column([shape.max_nodes for shape in shapes]),
            gpus_per_node=_column([shape.gpus_per_node for shape in shapes]),
        )
        decision = self._policy.decide(replace(state, jobs=jobs))
        running = set(state.running.tolist())
        allocation = {row: placement for row, placement in decision.allocation.items() if row in running}
        free = state.nodes.gpus.tolist()
        for placement in allocation.values():
            _take(free, placement)
        for row, placement in decision.allocation.items():
            if row in running:
                continue
            parts = placement if shapes[row].split is not Split.ANY else divided(placement, free)
            if parts is not None and all(free[node] >= gpus for node, gpus in parts.items()):
                _take(free, parts)
                allocation[row] = parts
        return replace(decision, allocation=allocation)


def divided(placement: Placement, free: Sequence[int]) -> Placement | None:
    """Return how Slurm divides as many GPUs among these nodes: one after another on each that has some free; None: too few are."""
    parts, left = dict.fromkeys(placement.nodes, 0), placement.num_gpus
    while left:
        open_nodes = [node for node in placement.nodes if parts[node] < free[node]]
        for node in open_nodes[:left]:
            parts[node] += 1
        left -= len(open_nodes[:left])
        if not open_nodes:
            return None
    return Placement.of(parts) if all(parts.values()) else None


def _column(values: Sequence[int]) -> IntColumn:
    return np.array(values, dtype=np.int64)


def _take(free: list[int], placement: Placement) -> None:
    for node, gpus in placement.items():
        free[node] -= gpus


def _shape(gpus: int) -> JobShape:
    shape = shape_of(ResourceRequest(1, 0, 1, 1, gpus_per_job=gpus), mix.GPUS)
    assert shape is not None, "a job of the mix fits on the cluster"
    return shape


def predicted(jobs: Sequence[Job], policy: str, seed: int) -> Turn:
    """Return the predicted turn of that policy: no job is stopped, and policies see time limits."""
    trace = Trace.of(
        "uplinks",
        [job.name for job in jobs],
        [round(job.submit_s * NS_PER_S) for job in jobs],
        [job.gpus for job in jobs],
        [round(job.alone_s * NS_PER_S) for job in jobs],
        limit_ns=[job.limit_min * 60 * NS_PER_S for job in jobs],
        preemptible=[False] * len(jobs),
        model=[job.model for job in jobs],
    )
    name, options = parse_policy(policy)
    cluster = _cluster()
    slowdown = build(["link-sharing"], topology=cluster.topology, profiles=_profiles())
    policy_as_live = AsSubmitted(load_policy(name, options))
    run = Simulation(trace, cluster, policy_as_live, Settings(estimates=Estimates("limit")), slowdown)
    run.run()
    log = run.finished
    jct_s = (np.array(log.finish) - trace.submit_ns[list(log.index)]) / NS_PER_S
    return Turn(policy, seed, tuple(jct_s.tolist()), float(max(log.finish)) / NS_PER_S)


def _cluster() -> Cluster:
    """Return the cluster. A node has one socket: emulated jobs do not share links inside a node."""
    count = mix.RACKS * mix.NODES_OF_RACK
    gpus, sockets = (mix.GPUS,) * count, (1,) * count
    racks = [mix.rack_of(node) for node in range(count)]
    topology = rack_tree(gpus, sockets, racks, nic_gbs=mix.NIC_GBYTE_S, uplink_gbs=mix.UPLINK_GBYTE_S)
    return Cluster(tuple(f"n{node + 1}" for node in range(count)), gpus, sockets, (1.0,) * count, topology)


def _profiles() -> ModelProfiles:
    """Return the models of the mix; a reduction takes the time of its bytes."""
    models = {model: ModelProfile(step.compute_s, step.bytes) for model, step in mix.steps().items()}
    return ModelProfiles(models, {}, paper_profiles().interference, RingTime(0.0, 0.0, 0.0))
