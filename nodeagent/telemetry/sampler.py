"""Samples of the node: the reports of jobs, joined with measurements of the kernel and the devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nodeagent.identity.cgroup import JobCgroups
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.telemetry.energy import JobEnergy
from nodeagent.telemetry.impairment import Impairments, of_job
from nodeagent.telemetry.network import NicCounters
from nodeagent.telemetry.nvml import GpuReader
from nodeagent.telemetry.slurm_jobs import SlurmJob, SlurmJobs, idle_gpus, with_jobs
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.report import GpuReading, JobReport, NicReading


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The measurements of one moment."""

    monotonic_ns: int
    jobs: tuple[JobReport, ...]
    gpus: tuple[GpuReading, ...] | None
    nics: tuple[NicReading, ...]
    lost_gpus: tuple[int, ...] = ()


@dataclass(slots=True)
class Sampler:
    """Takes samples of the whole node.

    Invariant: each job that the kernel shows on this node, or that reports, has one row, with its true id and user.
    """

    jobs: JobRegistry
    cgroups: JobCgroups
    slurm_jobs: SlurmJobs
    gpus: GpuReader
    nics: NicCounters
    _first_seen_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """Job and restart → time at which a job that has not reported was first seen."""
    _guard: RowGuard = field(default_factory=lambda: RowGuard("measurements of jobs"))
    _impairments: Impairments = field(default_factory=Impairments)
    _energy: JobEnergy = field(default_factory=JobEnergy)

    def sample(self, gpus: tuple[GpuReading, ...] | None, now_ns: int) -> NodeSample:
        """Take a sample; `gpus` is the present reading of the GPUs."""
        slurm_jobs = self.slurm_jobs.read(self.jobs.processes())
        owned = None if gpus is None else with_jobs(gpus, slurm_jobs)
        impaired = self._impairments.unread(now_ns) if owned is None else self._impairments.read(owned, now_ns)
        energy_j = self._energy.read(owned or (), slurm_jobs)
        rows = self._rows(slurm_jobs, now_ns)

        def measured_row(row: JobReport) -> JobReport:
            job = slurm_jobs.get(row.job_id)
            if job is None:
                return row
            return replace(
                self._measured(row, job, owned),
                impaired=of_job(job, owned or (), impaired),
                energy_j=energy_j.get((job.job_id, job.restart)),
            )

        made = self._guard.each(rows, measured_row)
        measured = tuple(row for _, row in made)
        lost = tuple(sorted(index for index, causes in impaired.items() if "lost" in causes))
        return NodeSample(now_ns, measured, owned, self.nics.read(now_ns), lost)

    def _rows(self, slurm_jobs: dict[int, SlurmJob], now_ns: int) -> Iterable[JobReport]:
        reported = {row.job_id: row for row in self.jobs.rows(now_ns)}
        for job_id, row in list(reported.items()):
            job = slurm_jobs.get(job_id)
            over = self.jobs.is_contained(job_id) if job is None else job.restart > row.restart
            # The row may be from a process of another user in the cgroup of the job. The kernel names the user of each process that
            # reports, so a uid of the job that is not certain is no reason to ignore the process.
            foreign = job is not None and job.uid_is_certain and job.uid != row.uid
            if foreign or (row.num_connected == 0 and over):  # or the run has left the node
                self.jobs.forget(job_id)
                del reported[job_id]
        silent = [job for job_id, job in slurm_jobs.items() if job_id not in reported]
        self._first_seen_ns = {
            (job.job_id, job.restart): self._first_seen_ns.get((job.job_id, job.restart), now_ns) for job in silent
        }
        rows = (*reported.values(), *(_silent(job, self._first_seen_ns[job.job_id, job.restart]) for job in silent))
        return sorted(rows, key=lambda row: row.job_id)

    def _measured(self, row: JobReport, job: SlurmJob, gpus: tuple[GpuReading, ...] | None) -> JobReport:
        return replace(
            row,
            usage=self.cgroups.usage(job.folders, job.pids),
            gpus=job.gpus,
            idle_gpus=idle_gpus(job, gpus),
            usr1=job.usr1,
            pressure=self.cgroups.pressure(job.folders),
        )


def _silent(job: SlurmJob, first_seen_ns: int) -> JobReport:
    """Return the row of a job of which no process reports."""
    return JobReport(
        job_id=job.job_id,
        uid=job.uid,
        restart=job.restart,
        first_seen_ns=first_seen_ns,
        steps=None,
        steps_per_s=None,
        last_step_ns=None,
        world_size=None,
        device=None,
        torch=None,
        script=None,
        model=None,
        profile=None,
        ranks=(),
        num_connected=0,
        num_ended=0,
        num_lost=0,
        claimed_job_ids=(),
    )
