"""The same trace under the same policy in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.api import Decision, Policy, load_policy, parse_policy
from policies.model import ClusterState, Split
from simulator.cluster.cluster import Cluster, default_sockets
from simulator.cluster.topology import flat
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S, Trace
from slurm.experiments.fidelity.fit import Fit
from slurm.experiments.fidelity.mix import GPUS, NODES, TrainingJob

SLOWDOWN = "max-min:reference=alone,sharing=duty"


@dataclass(frozen=True, slots=True)
class Predicted:
    """One job. Times in seconds."""

    name: str
    wait_s: float
    jct_s: float
    nodes: tuple[int, ...]


class AsSubmitted:
    """A policy that receives every job as its user has divided it among nodes, like from the controller.

    A trace says how many GPUs a job wants; a live job also says on how many nodes.
    """

    def __init__(self, policy: Policy, mix: Sequence[TrainingJob]) -> None:
        self.spec = policy.spec
        self._policy = policy
        self._jobs = {job.name: job for job in mix}

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision for the real shapes of the jobs."""
        jobs = [self._jobs[name] for name in state.jobs.ids]
        nodes = np.array([job.nodes for job in jobs], dtype=np.int64)
        shown = replace(
            state.jobs,
            split=np.full(len(jobs), int(Split.FIXED), dtype=np.int64),
            min_nodes=nodes,
            max_nodes=nodes,
            gpus_per_node=np.array([job.gpus_per_node for job in jobs], dtype=np.int64),
        )
        return self._policy.decide(replace(state, jobs=shown))


def predict(
    mix: Sequence[TrainingJob],
    submit_s: Sequence[float],
    fit: Fit,
    policy: str,
    nic_bytes_s: float,
    slowdown: str = SLOWDOWN,
) -> list[Predicted]:
    """Return the predicted results of jobs that are submitted at those times."""
    alone = [fit.alone(job) for job in mix]
    trace = Trace.of(
        "fidelity",
        [job.name for job in mix],
        [round(each * NS_PER_S) for each in submit_s],
        [job.gpus for job in mix],
        [round((each.latency_s + each.run_s) * NS_PER_S) for each in alone],
        limit_ns=[job.limit_min * 60 * NS_PER_S for job in mix],
        model=[job.name for job in mix],
    )
    gpus, sockets = (GPUS,) * NODES, (default_sockets(GPUS),) * NODES
    topology = flat(gpus, sockets, nic_gbs=nic_bytes_s / 1e9)
    names = tuple(f"n{node + 1}" for node in range(NODES))
    cluster = Cluster(names, gpus, sockets, (1.0,) * NODES, topology)
    profiles = replace(paper_profiles(), models={job.name: each.profile for job, each in zip(mix, alone, strict=True)})
    name, options = parse_policy(policy)
    run = Simulation(
        trace,
        cluster,
        AsSubmitted(load_policy(name, options), mix),
        Settings(estimates=Estimates("limit")),
        build([slowdown], topology=topology, profiles=profiles),
    )
    run.run()
    return _results(run, trace, [each.latency_s for each in alone])


def _results(run: Simulation, trace: Trace, latency_s: Sequence[float]) -> list[Predicted]:
    """Return the predictions in the order of the trace."""
    log = run.finished
    found: dict[int, Predicted] = {}
    for at, row in enumerate(log.index):
        submit_ns = int(trace.submit_ns[row])
        nodes = tuple(log.nodes[log.offset[at] : log.offset[at + 1]])
        wait_s = (log.first_start[at] - submit_ns) / NS_PER_S + latency_s[row]
        found[row] = Predicted(trace.job_ids[row], wait_s, (log.finish[at] - submit_ns) / NS_PER_S, nodes)
    return [found[row] for row in range(len(trace))]
