"""Reports on jobs. Times are seconds since the Unix epoch; None = not known."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client.answers.fields import many, maybe_real, maybe_u64, real, text, texts, u32, u64, word
from headway_client.answers.message import Message
from headway_client.words import JobState, PreemptionCause


@dataclass(frozen=True)
class ReportedWait(Message):
    """Why a job waited, and for how long."""

    why: str = text(1)
    """End of the sentence "it waited 5 min"."""
    wait_s: float = real(2)


@dataclass(frozen=True)
class ReportedRun(Message):
    """One run of a job."""

    start_s: float | None = maybe_real(1)
    end_s: float | None = maybe_real(2)
    """None = it still runs."""
    placement: str = text(3)
    """ "n1:8,n2:4", or only nodes where the GPUs are not known."""
    policy: str = text(4)
    """The policy that placed it; empty = not known."""
    reason: str = text(5)
    slurm_state: str = text(6)
    """Slurm's state at its end; empty = not known."""


@dataclass(frozen=True)
class ReportedStop(Message):
    """One preemption of a job."""

    number: int = u64(1)
    cause: PreemptionCause = word(2, PreemptionCause)
    why: str = text(3)
    time_s: float = real(4)
    step: int | None = maybe_u64(5)
    """Steps done at the checkpoint from which it went on."""
    cost_s: float | None = maybe_real(6)
    """Time from the save to the first step of the next run, seconds."""
    problem: str = text(7)
    """Loss, or failure, of this stop; empty = none."""


@dataclass(frozen=True)
class ReportedNeighbour(Message):
    """A job that shared links or hosts with the reported one."""

    job_id: str = text(1)
    """Empty = a job that the caller may not see."""
    windows: int = u32(2)
    """Windows in which both were measured."""
    loss: float = real(3)
    """Mean share of its speed that the reported job lost in them, from 0 to 1."""


@dataclass(frozen=True)
class JobSummary(Message):
    """Report on a job, in all its runs."""

    job_id: str = text(1)
    user: str = text(2)
    name: str = text(3)
    state: JobState = word(4, JobState)
    slurm_state: str = text(5)
    submit_time_s: float = real(6)
    """Its first submission."""
    end_time_s: float | None = maybe_real(7)
    """None = it has not ended."""
    wait_s: float = real(8)
    """Time since the submission in which it did not run, seconds."""
    service_s: float = real(9)
    """Time in which it ran, seconds."""
    gpu_hours: float | None = maybe_real(10)
    waits: tuple[ReportedWait, ...] = many(11, ReportedWait)
    """Longest first."""
    runs: tuple[ReportedRun, ...] = many(12, ReportedRun)
    """Oldest first; the newest 50."""
    stops: tuple[ReportedStop, ...] = many(13, ReportedStop)
    """Oldest first; the newest 50."""
    steps: int | None = maybe_u64(14)
    """Training steps of all runs, at least."""
    steps_per_s: float | None = maybe_real(15)
    """Mean over the measured windows."""
    contention_loss: float | None = maybe_real(16)
    """Share of its speed that it lost to jobs beside it, from 0 to 1."""
    beside: tuple[ReportedNeighbour, ...] = many(17, ReportedNeighbour)
    """The most costly first; at most 10."""
    idle_gpu_hours: float | None = maybe_real(18)
    """GPU hours in which no process of it was on its GPUs; None = not known."""
    hint: str = text(19)
    """One sentence when something was wasted; empty = nothing known."""
    missing: tuple[str, ...] = texts(20)
    """A sentence for each thing that is not known, and why."""
    energy_kwh: float | None = maybe_real(21)
    """Energy of its GPUs in all runs, kWh, as far as agents read their counters; None = no agent did."""
