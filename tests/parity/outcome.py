"""Outcome of a case on one cluster, with names of nodes, partitions and jobs that do not depend on where it was played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """Outcome of one job, of one task of an array, or of one component of a heterogeneous job."""

    words: str = ""
    """Words of a refusal at submission; empty if the job was accepted."""
    state: str = ""
    """Slurm's state at the end of the case; empty for a job that was refused."""
    reason: str = ""
    """Slurm's reason of a job that still waits."""
    why: str = ""
    """Headway's explanation of a job that still waits; empty on Slurm alone."""
    exit_code: str = ""
    restarts: int = 0
    began_s: float | None = None
    """Seconds from the first submission of the case to the first line of its first run; None if it never ran."""
    ended_s: float | None = None
    """Seconds from there to its end; None if it has not ended."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs on each node of its allocation."""
    resources: str = ""
    """Slurm's TRES of the allocation."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """SLURM_* and CUDA_VISIBLE_DEVICES of the batch script, in its last run."""
    tasks: tuple[Mapping[str, str], ...] = ()
    """The same of each task of its step, by rank."""
    output: str = ""
    """Output of the script."""
    accounting: Mapping[str, str] = field(default_factory=dict)
    """Fields of sacct; empty without slurmdbd."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of its allocation, in order."""
        return tuple(sorted(self.gpus))


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Exit status and words of a command."""

    status: int
    words: str


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of one case."""

    jobs: Mapping[str, JobOutcome] = field(default_factory=dict)
    commands: Mapping[str, CommandOutcome] = field(default_factory=dict)
    problem: str = ""
    """Reason why the case could not be played; empty if it was."""
    second_try: bool = False
    """True if Headway was worse when the case was played first, and this is the outcome of the second time."""

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return asdict(self)
