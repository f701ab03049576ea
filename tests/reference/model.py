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

    `service` is the time for which it held GPUs, pending overhead included; `last_nodes` are the GPUs that it held at its end.
    """

    first_start: Fraction
    finish: Fraction
    service: Fraction
    preemptions: int
    last_nodes: Nodes


@dataclass(eq=False)
class Active:
    """A job between its submission and its finish. It waits when it holds no nodes."""

    index: int
    """Place in the order of submission; breaks every tie."""
    job: Job
    left: Fraction
    """Work not yet done, in seconds."""
    overhead: Fraction = Fraction(0)
    """Seconds that it must hold its GPUs before its work goes on."""
    service: Fraction = Fraction(0)
    preemptions: int = 0
    first_start: Fraction | None = None
    nodes: Nodes = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """The job holds GPUs."""
        return bool(self.nodes)

    @property
    def attained(self) -> Fraction:
        """GPU-seconds that it has held."""
        return self.service * self.job.gpus

    @property
    def run_time_left(self) -> Fraction:
        """Seconds until it finishes if it runs from now on."""
        return self.overhead + self.left

    def run_for(self, seconds: Fraction) -> None:
        """Hold the GPUs for that long: overhead first, then work."""
        spent = min(seconds, self.overhead)
        self.overhead -= spent
        self.left -= seconds - spent
        self.service += seconds
