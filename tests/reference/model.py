"""Input, state and results of the reference simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

Nodes = dict[int, int]
"""Allocation of a job: node index -> number of GPUs, never 0."""


@dataclass(frozen=True)
class Job:
    """One row of a trace; times in seconds. `duration` is its run time when nothing stops it."""

    id: str
    submit: Fraction
    gpus: int
    duration: Fraction
    preemptible: bool = True


@dataclass(frozen=True)
class Result:
    """The result of a job.

    `service` is the time for which it had GPUs, overhead included; `last_nodes` are its GPUs at its end.
    """

    first_start: Fraction
    finish: Fraction
    service: Fraction
    preemptions: int
    last_nodes: Nodes


@dataclass(eq=False)
class Active:
    """A job between its submission and its finish. It waits while it has no nodes."""

    index: int
    """Place in the order of submission; breaks every tie."""
    job: Job
    left: Fraction
    """Work not yet done, in seconds."""
    overhead: Fraction = Fraction(0)
    """Seconds of overhead that are left before its work continues."""
    service: Fraction = Fraction(0)
    preemptions: int = 0
    first_start: Fraction | None = None
    nodes: Nodes = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """True if the job has GPUs."""
        return bool(self.nodes)

    @property
    def attained(self) -> Fraction:
        """GPU-seconds that it has used."""
        return self.service * self.job.gpus

    @property
    def run_time_left(self) -> Fraction:
        """Seconds until it finishes if it runs from now on."""
        return self.overhead + self.left

    def run_for(self, seconds: Fraction) -> None:
        """Run for that long: overhead first, then work."""
        spent = min(seconds, self.overhead)
        self.overhead -= spent
        self.left -= seconds - spent
        self.service += seconds
