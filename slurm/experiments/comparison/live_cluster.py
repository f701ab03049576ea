"""The cluster of the comparison, whose links have a limited rate, and the times of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slurm.experiments.comparison.mix import GPUS, NODES, WIDTH, Job
from slurm.experiments.slurm_log import Times, times_of
from slurm.experiments.turns.live_cluster import LiveCluster, booted

_TCP = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0")
_WINDOW_S = 6.0


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The times of one job that has ended, in seconds since the Unix epoch."""

    name: str
    called: str
    submit_s: float
    end_s: float
    runs: int
    """Number of runs; 1 = it was never stopped."""

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


class ComparisonCluster(LiveCluster):
    """Jobs of one kind and size have the same job name in Slurm."""

    def start(self, job: Job, name: str) -> None:
        """Submit a job."""
        options = (
            f"--job-name={job.called} --nodes={job.nodes} --ntasks-per-node=1",
            f"--gpus-per-node={job.gpus_per_node} --time={job.limit_min}",
        )
        self.submit(name, options, f"{job.steps} {job.kind.layers} {WIDTH} {job.kind.compute_s}")

    def has_ended(self, name: str) -> bool:
        """Return whether a job has trained to its end, and slurmctld has logged that."""
        return self.id_of(name) in self._times().ended and super().has_ended(name)

    def _times(self) -> Times:
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))

    def ended(self, job: Job, name: str) -> EndedJob:
        """Return the times of a job that has ended."""
        times, job_id = self._times(), self.id_of(name)
        return EndedJob(name, job.called, times.submitted[job_id], times.ended[job_id], len(self.runs_of(name)))


@contextmanager
def comparison_cluster(rate: str, report: Callable[[str], None], **settings: Any) -> Iterator[ComparisonCluster]:
    """Boot a cluster with links of that rate, agents, and a controller with these settings. Remove everything at the end."""
    usual = {"agents_window_s": _WINDOW_S}
    with booted("compare", report, usual | settings, _TCP, nodes=NODES, gpus=GPUS, rate=rate) as parts:
        yield ComparisonCluster(*parts)
