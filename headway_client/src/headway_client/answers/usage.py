"""GPU time of users."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client.answers.fields import flag, many, maybe_real, real, text, u32, u64
from headway_client.answers.message import Message


@dataclass(frozen=True)
class UserUsage(Message):
    """GPU time and jobs of one user."""

    user: str = text(1)
    gpu_hours: float = real(2)
    """GPU hours of jobs that have ended since the beginning of the time, and of those that have not."""
    jobs_ended: int = u64(3)
    jobs_running: int = u32(4)
    gpus_running: int = u32(5)
    jobs_waiting: int = u32(6)
    gpus_waiting: int = u32(7)
    fair_share: float | None = maybe_real(8)
    """Slurm's fair-share factor, from 0 to 1: the largest one of the user's associations; None = not read."""


@dataclass(frozen=True)
class SizeWaits(Message):
    """Waits of jobs of one size before their last run."""

    most_gpus: int = u32(1)
    """Upper bound of the size, in GPUs; 0 = all that are larger than 128."""
    jobs: int = u64(2)
    p50_s: float = real(3)
    """Median, seconds."""
    p95_s: float = real(4)
    """95th percentile, seconds."""


@dataclass(frozen=True)
class Usage(Message):
    """GPU time of users."""

    since_s: float = real(1)
    """Beginning of the time, seconds since the Unix epoch."""
    users: tuple[UserUsage, ...] = many(2, UserUsage)
    """Most GPU hours first."""
    all_users: bool = flag(3)
    """False = only that of the caller."""
    waits: tuple[SizeWaits, ...] = many(4, SizeWaits)
    """Waits of the jobs that have ended, by size, the smallest first."""
