"""Epochs and slots of the jobs of an episode, and the reward that follows from them (equation 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.model import FloatColumn
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.kernel.job import ActiveJob
from simulator.traces.trace import Trace


class EpochProgress:
    """Progress of the jobs of one episode, in the epochs that their users state.

    A trace has the epochs that jobs train; where users err, the stated ones differ. Invariant: what `trained` returns for a job
    adds up to its true epochs for each stated one, which is 1 where users state the truth.
    """

    def __init__(
        self, trace: Trace, simulation: Simulation, default_epochs: int, per_stated_epoch: FloatColumn
    ) -> None:
        """Begin an episode; `default_epochs` are those of jobs for which the trace has none. Raises SettingError."""
        self._simulation = simulation
        self._epochs = whole_numbers(trace, "epochs", [default_epochs] * len(trace))
        self._per_stated: list[float] = per_stated_epoch.tolist()
        self._shown: dict[int, float] = {}
        self._finished = 0
        self.slots_run: dict[int, int] = {}
        """Number of slots in which each job of the trace has run; a job without an entry has run in none."""

    def epochs(self, job: ActiveJob) -> int:
        """Return the stated epochs of a job."""
        return self._epochs[job.index]

    def epochs_left(self, job: ActiveJob) -> float:
        """Return the stated epochs less those trained; 0 for a job that trains longer than stated."""
        excess = 1.0 - 1.0 / self._per_stated[job.index]
        return max(self._epochs[job.index] * (job.left / job.work - excess), 0.0)

    def share_left(self, job: ActiveJob) -> float:
        """Return `epochs_left` as a share of the epochs that the job truly trains."""
        return self.epochs_left(job) / self._epochs[job.index]

    def value_of(self, job: ActiveJob, work: float) -> float:
        """Return the reward of so much of the job's work, in ns of run time alone; no job trains more than is left."""
        return min(work, job.left) / job.work * self._per_stated[job.index]

    def count_slot(self, running: Sequence[ActiveJob]) -> None:
        """Count one slot for each of these jobs."""
        for job in running:
            self.slots_run[job.index] = self.slots_run.get(job.index, 0) + 1

    def trained(self) -> Mapping[int, float]:
        """Return the epochs trained since the last call as a share of the stated ones, by row of the trace (equation 1).

        Jobs that trained nothing may be left out.
        """
        before = self._shown
        self._shown = {job.index: 1.0 - job.left / job.work for job in self._simulation.jobs()}
        finished = self._simulation.finished.index
        now = {**dict.fromkeys(finished[self._finished :], 1.0), **self._shown}
        self._finished = len(finished)
        return {job: (share - before.get(job, 0.0)) * self._per_stated[job] for job, share in now.items()}


def whole_numbers(trace: Trace, column: str, otherwise: list[int], least: int = 1) -> list[int]:
    """Read a column of whole numbers from `least` on, or return the default if the trace has none. Raises SettingError."""
    texts = trace.extra.get(column)
    if texts is None:
        return otherwise
    for text in texts:
        if not (text.isdecimal() and int(text) >= least):
            raise SettingError(
                f"the trace's column {column} has {text!r}; give whole numbers from {least} on, or leave it out"
            )
    return [int(text) for text in texts]
