"""Predictions of the simulator for the same jobs on the same cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.api import load_policy, parse_policy
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
    run = Simulation(trace, cluster, load_policy(name, options), Settings(estimates=Estimates("limit")), slowdown)
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
