"""The history of a run: from snapshots of the cluster to the result of each job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm.demo.display.view import ClusterView, JobView, Stage
from slurm.demo.workload import Training


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of one job. Times in seconds."""

    label: str
    request: str
    job_id: str
    state: str
    """State as Slurm names it, such as COMPLETED; "" when the job was never seen."""
    gpus: tuple[tuple[str, int], ...]
    why: str
    wait_s: float | None
    """Time from submission to start."""
    jct_s: float | None
    """Time from submission to end."""
    step_ms: float | None = None
    """Mean time of a training step, as the job itself measured it."""

    @property
    def completed(self) -> bool:
        """True when the job completed."""
        return self.jct_s is not None and self.state == "COMPLETED"


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one run of all jobs."""

    scheduler: str
    jobs: tuple[JobResult, ...]
    makespan_s: float | None
    """Time from the first submission to the last end; None when a job did not end."""

    @property
    def mean_wait_s(self) -> float | None:
        """Mean over the jobs that ended; None when none did."""
        return _mean(job.wait_s for job in self.jobs if job.jct_s is not None)

    @property
    def mean_jct_s(self) -> float | None:
        """Mean over the jobs that ended; None when none did."""
        return _mean(job.jct_s for job in self.jobs)

    @property
    def completed(self) -> bool:
        """True when every job completed."""
        return all(job.completed for job in self.jobs)


class History:
    """Keeps the last view of each job, because Slurm forgets where a job ran, and why.

    Invariant: one entry per job of the mix, in the mix's order, from the beginning on.
    """

    def __init__(self, mix: Sequence[Training]) -> None:
        self._requests = {label: training.request_text for training in mix for label in training.labels}
        self._jobs = {label: JobView(label, "", Stage.EXPECTED) for label in self._requests}

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """A copy of the last view of every job."""
        return dict(self._jobs)

    @property
    def all_ended(self) -> bool:
        """True when every job has ended."""
        return all(job.stage.ended for job in self._jobs.values())

    def request(self, label: str) -> str:
        """Return the request of a job."""
        return self._requests[label]

    def update(self, view: ClusterView) -> list[JobView]:
        """Add a view of the cluster. Return the jobs whose stage has changed."""
        changed = []
        for label, seen in view.jobs.items():
            before = self._jobs.get(label)
            if before is None:  # a job of another user
                continue
            reason_holds = before.stage is not Stage.WAITING or seen.stage is Stage.WAITING
            now = replace(seen, gpus=seen.gpus or before.gpus, why=seen.why or (before.why if reason_holds else ""))
            self._jobs[label] = now
            if now.stage is not before.stage:
                changed.append(now)
        return changed

    def explain(self, label: str, why: str) -> None:
        """Set the reason for the placement of a job."""
        self._jobs[label] = replace(self._jobs[label], why=why)

    def result(self, scheduler: str, step_ms: Mapping[str, float]) -> RunResult:
        """Return the result of the run."""
        ends = [job.end_s for job in self._jobs.values() if job.end_s is not None]
        submits = [job.submit_s for job in self._jobs.values() if job.submit_s]
        complete = len(ends) == len(self._jobs)
        return RunResult(
            scheduler=scheduler,
            jobs=tuple(self._result(job, step_ms.get(job.label)) for job in self._jobs.values()),
            makespan_s=max(ends) - min(submits) if complete and submits else None,
        )

    def _result(self, job: JobView, step_ms: float | None) -> JobResult:
        ended = job.stage.ended and job.end_s is not None
        return JobResult(
            label=job.label,
            request=self._requests[job.label],
            job_id=job.job_id,
            state=job.state,
            gpus=job.gpus,
            why=job.why,
            wait_s=None if job.start_s is None else max(job.start_s - job.submit_s, 0.0),
            jct_s=max(job.end_s - job.submit_s, 0.0) if ended and job.end_s is not None else None,
            step_ms=step_ms,
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
