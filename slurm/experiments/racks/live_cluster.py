"""The cluster of racks, and the times of its sleeping jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slurm.experiments.errors import ExperimentError
from slurm.experiments.racks.mix import GPUS, NIC_GBYTE_S, NODES_OF_RACK, RACKS, UPLINK_GBYTE_S, RackJob, topology
from slurm.experiments.slurm_log import Times, times_of
from slurm.experiments.turns.live_cluster import LiveCluster, booted

_SCRIPT = """#!/bin/bash
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
racks=$(for node in $nodes; do echo $(( (${{node#n}} - 1) / {nodes_of_rack} )); done | sort -u | wc -l)
count=$(echo "$nodes" | wc -l)
echo "$count $racks" > {name}.where
sleep "$(awk -v n="$count" -v racks="$racks" 'BEGIN {{
  speed = racks > 1 ? {uplink} : {nic}
  print {steps} * ({compute} + 2 * (n - 1) / n * {gradients} / speed) }}')"
"""
_READ_S = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended. Times are in seconds since the Unix epoch."""

    name: str
    gpus: int
    submit_s: float
    start_s: float
    end_s: float
    nodes: int
    racks: int

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


class RackCluster(LiveCluster):
    """A cluster whose jobs sleep."""

    def start(self, job: RackJob, name: str) -> None:
        """Submit a job that divides its GPUs among nodes as the policy wants."""
        words = ("--partition=dl", "--output=/dev/null", f"--gpus={job.gpus}", f"--time={job.limit_min}")
        self._run_sbatch(name, "sbatch", "--parsable", f"--job-name={job.model}", *words, stdin=script(job, name))

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have ended. Raises ExperimentError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if self.id_of(name) not in self._times().ended]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._end_of_log(late[0])}")
            time.sleep(_READ_S)

    def ended(self, jobs: Mapping[str, RackJob]) -> list[Ended]:
        """Return the facts about jobs that have ended, by the names of their files."""
        times = self._times()
        return [self._ended(job, name, times) for name, job in jobs.items()]

    def _ended(self, job: RackJob, name: str, times: Times) -> Ended:
        job_id = self.id_of(name)
        nodes, racks = (self.folder / f"{name}.where").read_text().split()
        moments = times.submitted[job_id], times.started[job_id], times.ended[job_id]
        return Ended(name, job.gpus, *moments, int(nodes), int(racks))

    def _times(self) -> Times:
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))

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
        "nodes": RACKS * NODES_OF_RACK,
        "gpus": GPUS,
        "indexed_gpu_types": False,
        "added_files": {"etc/topology.conf": topology()},
        "extra_conf": ("TopologyPlugin=topology/tree",),
    }
    with booted("racks", report, {"policy_deadline_s": 30.0}, agents=False, **spec) as parts:
        cluster = RackCluster(*parts)
        if "racks_known" not in cluster.headway.log("controller"):
            raise ExperimentError(f"the controller knows no racks: {cluster.headway.log('controller')[-1500:]}")
        yield cluster
