"""Energy of jobs: the differences of their GPUs' energy counters between two readings, added up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import GpuReading

_KEPT_READINGS = 20
"""Number of readings for which a run that is absent is remembered: a reading of the jobs may miss one whose cgroup cannot be read
at that moment. The controller takes the largest value, so a run that began at 0 again would seem to use nothing."""

_Run = tuple[int, int]
"""Job and restart."""


class JobEnergy:
    """Adds up the energy of runs.

    Invariant: what a GPU has used between two readings of its counter is given to the runs that held it at both, in equal parts. If
    there is none, it is given to none: the driver may not have answered for hours, in which a job ended and another one began.
    """

    def __init__(self) -> None:
        self._counters: dict[int, float] = {}
        """Energy counter of each GPU at the last reading, joules. Bound: the GPUs of the node."""
        self._holders: dict[int, Set[_Run]] = {}
        """Runs that held each GPU at the last reading of its counter, or a little earlier if they are absent since.
        Bound: the GPUs of the node, with the runs of `_used` for each."""
        self._used: dict[_Run, float] = {}
        """Joules so far. Bound: the runs within the last `_KEPT_READINGS` readings."""
        self._absent: dict[_Run, int] = {}
        """Readings in a row without the run, of runs with joules. Bound: the runs of `_used`."""

    def read(self, gpus: Iterable[GpuReading], jobs: Mapping[int, SlurmJob]) -> Mapping[_Run, float]:
        """Return the joules of each present run, by job and restart; a run without a counter on any of its GPUs is left out."""
        now = {gpu.index: gpu.health.energy_j for gpu in gpus if gpu.health.energy_j is not None}
        spent = {index: self._since(index, joules) for index, joules in now.items()}
        self._counters |= now
        gpus_of = {(job.job_id, job.restart): job.gpus or () for job in jobs.values()}
        held = {index: {run for run, own in gpus_of.items() if index in own} for index in now}
        paying = {index: held[index] & self._holders.get(index, set()) for index in now}
        used: dict[_Run, float] = {}
        for run, own in gpus_of.items():
            parts = [
                spent[index] / len(paying[index]) if run in paying[index] else 0.0 for index in own if index in now
            ]
            if parts:
                used[run] = self._used.get(run, 0.0) + sum(parts)
        self._keep(gpus_of.keys(), used)
        for index in now:
            self._holders[index] = held[index] | (self._holders.get(index, set()) & self._absent.keys())
        return {run: joules for run, joules in self._used.items() if run in gpus_of}

    def _keep(self, present: Set[_Run], used: dict[_Run, float]) -> None:
        """Note the joules of the runs with a counter. A run without one in this reading, or that is absent, keeps what it has."""
        self._absent = {run: self._absent.get(run, 0) + 1 for run in self._used if run not in present}
        over = {run for run, readings in self._absent.items() if readings > _KEPT_READINGS}
        self._used = {run: joules for run, joules in self._used.items() if run not in over} | used

    def _since(self, index: int, joules: float) -> float:
        """Return the joules since the last reading. A counter that fell began anew: the driver was loaded again."""
        before = self._counters.get(index)
        if before is None:
            return 0.0
        return joules - before if joules >= before else joules
