"""The cluster of racks, and the times of its sleeping jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slurm.experiments.racks.mix import GPUS, NIC_GBYTE_S, NODES_OF_RACK, RACKS, UPLINK_GBYTE_S, RackJob
from slurm.experiments.turns.live_cluster import booted
from slurm.experiments.turns.racks import RackedCluster, in_racks

_SCRIPT = """#!/bin/bash
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
racks=$(for node in $nodes; do echo $(( (${{node#n}} - 1) / {nodes_of_rack} )); done | sort -u | wc -l)
count=$(echo "$nodes" | wc -l)
echo "$count $racks" > {name}.where
sleep "$(awk -v n="$count" -v racks="$racks" 'BEGIN {{
  speed = racks > 1 ? {uplink} : {nic}
  print {steps} * ({compute} + 2 * (n - 1) / n * {gradients} / speed) }}')"
"""


class RackCluster(RackedCluster):
    """A cluster whose jobs sleep."""

    def start(self, job: RackJob, name: str) -> None:
        """Submit a job that divides its GPUs among nodes as the policy wants."""
        words = ("--partition=dl", "--output=/dev/null", f"--gpus={job.gpus}", f"--time={job.limit_min}")
        self._run_sbatch(name, "sbatch", "--parsable", f"--job-name={job.model}", *words, stdin=script(job, name))

    def forwarded(self, since_s: float) -> int:
        """Return how many jobs were placed since then by several schedulers, which forwarded workers to each other."""
        query = (
            "SELECT COUNT(*) FROM placed JOIN decision ON placed.decision = decision.id "
            "WHERE decision.time_s >= ? AND placed.reason LIKE '%which forwarded workers%'"
        )
        return int(self.journal(query, since_s)[0][0])


def script(job: RackJob, name: str) -> str:
    """Return the batch script of a job: it sleeps for `job.seconds` on the nodes that it was given."""
    compute_s, gradients = job.step
    return _SCRIPT.format(
        name=name, nodes_of_rack=NODES_OF_RACK, uplink=UPLINK_GBYTE_S * 1e9, nic=NIC_GBYTE_S * 1e9, steps=job.steps,
        compute=compute_s, gradients=gradients,
    )  # fmt: skip


@contextmanager
def rack_cluster(report: Callable[[str], None]) -> Iterator[RackCluster]:
    """Boot a cluster of three racks without agents. Remove everything at the end. Raises ExperimentError without racks."""
    spec: dict[str, Any] = {
        "gpus": GPUS,
        "indexed_gpu_types": False,
        **in_racks(RACKS, NODES_OF_RACK, UPLINK_GBYTE_S),
    }
    with booted("racks", report, {"policy_deadline_s": 30.0}, agents=False, **spec) as parts:
        cluster = RackCluster(*parts)
        cluster.require_racks()
        yield cluster
