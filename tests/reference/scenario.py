"""Scenarios in one line: a cluster, a policy, a few jobs, and the expected outcome."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tests.reference import Job, Result, simulate

Row = tuple[int, int, int]
"""Submit, GPUs, duration."""


def job(name: str, row: Row) -> Job:
    submit, gpus, duration = row
    return Job(name, Fraction(submit), gpus, Fraction(duration))


def play(cluster: str, policy: str, **rows: Row) -> Replay:
    """The jobs, by name, in the order of the trace, on a cluster such as 2x4."""
    return Replay(cluster, policy, [job(name, row) for name, row in rows.items()])


class Replay:
    """A scenario; it runs when an outcome is read."""

    def __init__(self, cluster: str, policy: str, jobs: list[Job]) -> None:
        self._nodes, self._gpus = (int(number) for number in cluster.split("x"))
        self._policy, self._jobs = policy, jobs
        self._options: dict[str, object] = {}

    def under(self, **options: object) -> Replay:
        """The same with these options of `simulate`."""
        self._options |= options
        return self

    def pin(self, *names: str) -> Replay:
        """The same with these jobs not preemptible."""
        self._jobs = [replace(each, preemptible=each.id not in names) for each in self._jobs]
        return self

    @property
    def results(self) -> dict[str, Result]:
        return simulate(self._jobs, self._nodes, self._gpus, self._policy, **self._options)  # type: ignore[arg-type]

    @property
    def spans(self) -> dict[str, tuple[Fraction | int, Fraction | int]]:
        """First start and finish."""
        return {name: (each.first_start, each.finish) for name, each in self.results.items()}

    @property
    def preemptions(self) -> dict[str, int]:
        return {name: each.preemptions for name, each in self.results.items()}

    @property
    def nodes(self) -> dict[str, dict[int, int]]:
        """Return the nodes of each job when it finished."""
        return {name: each.last_nodes for name, each in self.results.items()}
