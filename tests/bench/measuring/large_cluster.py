"""A real slurmctld that has 2,000 nodes and 10,000 waiting jobs.

Four nodes are real, and closed; the others exist in slurm.conf only and are DOWN, so that nothing can start. The jobs are
array tasks, each changed so that slurmctld splits it from its array: ten thousand records, as after ten thousand sbatch.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.bench.measuring.grounds import cluster_name, until

PARTITION = "big"
_REAL_NODES = 4
_ARRAY = 1000


@dataclass(frozen=True, slots=True)
class Large:
    """The cluster and its Headway."""

    cluster: MiniCluster
    headway: Installation
    nodes: int
    jobs: int


@contextmanager
def large_cluster(*, nodes: int, jobs: int) -> Iterator[Large]:
    """Boot the cluster with controller and policy server, and fill its queue."""
    name = cluster_name()
    with (
        Installation.prepare(name, partitions=(PARTITION,)) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=_REAL_NODES, extra_conf=_conf(nodes))) as cluster,
    ):
        cluster.run("scontrol", "update", "NodeName=n[1-4]", "State=DRAIN", "Reason=benchmark")
        headway.configure(cluster, slurm_timeout_s=60.0)
        headway.start_policy("srtf")
        headway.start_controller()
        _submit(cluster, jobs)
        until(lambda: headway.ask("status")["jobs_waiting"] >= jobs, "the queue is seen", 120.0, 1.0)
        yield Large(cluster, headway, nodes, jobs)


def _conf(nodes: int) -> tuple[str, ...]:
    """Return the lines of slurm.conf for racks of up to 200 nodes."""
    gres = ",".join(f"gpu:g{gpu}:1" for gpu in range(8))
    lines, names = [], [f"n[1-{_REAL_NODES}]"]
    left, rack = nodes - _REAL_NODES, 0
    while left > 0:
        count, rack = min(left, 200), rack + 1
        names.append(f"r{rack}n[1-{count}]")
        lines.append(
            f"NodeName={names[-1]} NodeAddr=10.250.{rack}.[1-{count}] CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 "
            f"ThreadsPerCore=1 RealMemory=256000 Gres={gres} Feature=rack{rack} State=DOWN Reason=benchmark"
        )
        left -= count
    return (*lines, f"PartitionName={PARTITION} Nodes={','.join(names)} MaxTime=INFINITE State=UP")


def _submit(cluster: MiniCluster, jobs: int) -> None:
    for begin in range(0, jobs, _ARRAY):
        count = min(_ARRAY, jobs - begin)
        array_id = cluster.run(
            "sbatch", "--parsable", f"--array=1-{count}", f"--partition={PARTITION}", "--output=/dev/null", "--time=60",
            f"--gres=gpu:{(1, 2, 4, 8)[begin // _ARRAY % 4]}", f"--job-name=train-{begin // _ARRAY}", "--wrap=sleep 1",
        ).stdout.strip()  # fmt: skip
        lines = [f"update JobId={array_id}_{task} TimeLimit={60 + task % 900}\n" for task in range(1, count + 1)]
        _scontrol(cluster, "".join(lines))


def _scontrol(cluster: MiniCluster, commands: str) -> None:
    done = subprocess.run(
        ["scontrol", "-o"],
        input=commands,
        env={**os.environ, **cluster.env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode or done.stderr:
        raise RuntimeError(f"scontrol: {done.stderr[-500:]}")
