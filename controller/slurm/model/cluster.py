"""Nodes, reservations and partitions as Slurm shows them, and a snapshot of queue and cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.slurm.model.job import SlurmJob

_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP", "POWER_UP"})

_MAINTENANCE = frozenset({"MAINT", "MAINTENANCE"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as Slurm shows it."""

    name: str
    state: str
    """Slurm's states, joined by "+": IDLE, MIXED+DRAIN, DOWN*, ..."""
    available: bool
    """True when its state lets it start jobs now."""
    gpus: int
    gpu_type: str
    cpus: int
    memory_mib: int
    features: frozenset[str]
    partitions: frozenset[str]
    reason: str
    address: str = ""
    """NodeAddr: a host name or an address; empty: not known."""
    gpus_by_type: tuple[tuple[str, int], ...] = ()
    """Types and numbers of the GPUs that have a type."""

    @property
    def is_off(self) -> bool:
        """True while Slurm's power saving has it off."""
        return self.state.endswith("~") or "POWERED_DOWN" in self.state.split("+")

    @property
    def is_asleep(self) -> bool:
        """True while Slurm's power saving has it off, or boots it: no agent runs there."""
        return is_asleep(self.state)

    @property
    def is_usable(self) -> bool:
        """True if users' jobs may start there. During a maintenance only jobs of its reservation do."""
        return self.available and not self.state.endswith("$") and _MAINTENANCE.isdisjoint(self.state.split("+"))


def is_asleep(state: str) -> bool:
    """Return whether power saving has a node in that state off, or boots it: "IDLE+CLOUD+POWERED_DOWN", "IDLE~"."""
    return state.endswith(("~", "#")) or not _ASLEEP.isdisjoint(state.split("+"))


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation that is or will be active. Times are Unix times."""

    name: str
    nodes: frozenset[str]
    start_time_s: float
    end_time_s: float
    magnetic: bool = False
    """True if jobs that may use it need not request it (flag MAGNETIC)."""
    users: frozenset[str] = frozenset()
    """Users that may use it, in Slurm's words: "-ann" is one that may not. Empty: users are not named."""
    accounts: frozenset[str] = frozenset()
    """The same for accounts."""
    draws_only_shorter: bool = False
    """True if Slurm starts a job that does not request it there only if the job's time limit ends before it does (26.05)."""

    def draws(self, user: str, account: str) -> bool:
        """Return whether Slurm also starts jobs of that user and account there that do not request the reservation.

        If it names users and accounts, the job must have both. If it only excludes some, it draws none: a job that Slurm could
        start there then waits for other nodes.
        """
        named = bool(self.users or self.accounts)
        return (
            self.magnetic
            and named
            and (not self.users or user in self.users)
            and (not self.accounts or account in self.accounts)
        )


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """One partition."""

    name: str
    nodes: frozenset[str]
    up: bool
    max_time_s: float | None
    priority_tier: int = 1
    """PriorityTier: jobs of a higher tier come before all others."""
    priority_job_factor: int = 1
    """PriorityJobFactor, from which the partition's part of a job's priority is computed."""
    preempt_mode: str = ""
    """PreemptMode of its jobs in Slurm's words: "REQUEUE", "CANCEL", "OFF", "GANG,SUSPEND"; empty: not known."""
    grace_s: float = 0.0
    """Time that Slurm gives its jobs to end before it stops them for others, seconds."""
    min_nodes: int = 0
    max_nodes: int | None = None
    """Number of nodes that its jobs may have; None: unlimited."""


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """Queue and cluster at one time. It keeps ended jobs as long as slurmctld does (MinJobAge)."""

    time_s: float
    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]
    partitions: tuple[SlurmPartition, ...]
    reservations: tuple[SlurmReservation, ...]
    unread: frozenset[int] = frozenset()
    """Slurm's numbers of jobs that may exist and were not read this time: `jobs` has what was known of them before, or nothing."""

    left_out: int = 0
    """Number of jobs with a mark of ours that a reading of only such jobs left out, because there are too many."""

    def unread_of(self, job_ids: Iterable[str]) -> frozenset[str]:
        """Return those of these jobs about which this snapshot has no news: they count as unchanged, and are not gone.

        A task of an array may be on any record, and so is one of them unless it was read.
        """
        if not self.unread:
            return frozenset()
        wanted = set(job_ids)
        read = {job.key.job_id for job in self.jobs if job.key.job_id in wanted and job.raw_id not in self.unread}
        return frozenset(job_id for job_id in wanted - read if not job_id.isdecimal() or int(job_id) in self.unread)
