"""Epochs and slots of the jobs of an episode, and the reward that follows from them (equation 1)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.kernel.job import ActiveJob
from simulator.traces.trace import Trace


class Progress:
    """Progress of the jobs of one episode. Invariant: rewards of slots add up to `trained()` since the last begin."""

    def __init__(self, trace: Trace, simulation: Simulation, default_epochs: int) -> None:
        """Begin an episode; `default_epochs` are those of jobs for which the trace has none. Raises SettingError."""
        self._simulation = simulation
        self._epochs = whole_numbers(trace, "epochs", [default_epochs] * len(trace))
        self._trained = 0.0
        self.slots_run: dict[int, int] = {}
        """Number of slots in which each job of the trace has run; a job without an entry has run in none."""

    def epochs_left(self, job: ActiveJob) -> float:
        """Return the epochs that the job has to train."""
        return self._epochs[job.index] * job.left / job.work

    def count_slot(self, running: Sequence[ActiveJob]) -> None:
        """Count one slot for each of these jobs."""
        for job in running:
            self.slots_run[job.index] = self.slots_run.get(job.index, 0) + 1

    def reward(self) -> float:
        """Return the sum over jobs of the epochs trained since the last call, as shares of each job's epochs."""
        before, self._trained = self._trained, self._all_trained()
        return self._trained - before

    def _all_trained(self) -> float:
        under_way = sum([1.0 - job.left / job.work for job in self._simulation.jobs()])
        return len(self._simulation.finished.index) + under_way


def whole_numbers(trace: Trace, column: str, otherwise: list[int]) -> list[int]:
    """Read a column of whole numbers from 1 on, or return the default if the trace has none. Raises SettingError."""
    texts = trace.extra.get(column)
    if texts is None:
        return otherwise
    for text in texts:
        if not (text.isdecimal() and int(text) > 0):
            raise SettingError(
                f"the trace's column {column} has {text!r}; give whole numbers from 1 on, or leave it out"
            )
    return [int(text) for text in texts]
