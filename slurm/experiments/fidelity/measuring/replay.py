"""A replay of a trace of jobs on the mini-cluster, under one policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from slurm.experiments.fidelity.measuring.live_cluster import LiveCluster
from slurm.experiments.fidelity.mix import TrainingJob
from slurm.experiments.fidelity.records import Replay
from slurm.experiments.machine import cpu_ticks
from slurm.experiments.policy_names import in_file_names

_PATIENCE_S = 400.0


def replay(cluster: LiveCluster, mix: Sequence[TrainingJob], policy: str, report: Callable[[str], None]) -> Replay:
    """Submit every job at its time, and wait for the last to end."""
    names = [f"{in_file_names(policy)}-{job.name}" for job in mix]
    with cluster.scheduled_by(policy):
        busy, ticks = cpu_ticks()
        began_s = time.time()
        for job, name in zip(mix, names, strict=True):
            time.sleep(max(0.0, began_s + job.submit_s - time.time()))
            cluster.submit(job, name)
        cluster.wait(names, _PATIENCE_S)
        busy_then, ticks_then = cpu_ticks()
    runs = tuple(cluster.run_of(name) for name in names)
    found = Replay(policy, began_s, runs, (busy_then - busy) / (ticks_then - ticks))
    report(f"{policy}: mean JCT {found.avg_jct_s:.1f} s, cores busy {found.cpu_busy:.0%}")
    return found
