"""Energy of jobs: the differences of their GPUs' energy counters between two readings, added up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import GpuReading

_KEPT_READINGS = 20
"""Number of readings for which a run that is absent is remembered: a reading of the jobs may miss one whose cgroup cannot be read
at that moment. The controller takes the largest value, so a run that began at 0 again would seem to use nothing."""


class JobEnergy:
    """Invariant: every joule that a GPU has used is given to the jobs that held it at the end of the interval, in equal parts."""

    def __init__(self) -> None:
        self._counters: dict[int, float] = {}
        """Energy counter of each GPU at the last reading, joules. Bound: the GPUs of the node."""
        self._used: dict[tuple[int, int], float] = {}
        """Job and restart → joules so far. Bound: the runs within the last `_KEPT_READINGS` readings."""
        self._absent: dict[tuple[int, int], int] = {}
        """Readings in a row without the run, of runs with joules. Bound: the runs of `_used`."""

    def read(self, gpus: Iterable[GpuReading], jobs: Mapping[int, SlurmJob]) -> Mapping[tuple[int, int], float]:
        """Return the joules of each present run, by job and restart; a run without a counter on any of its GPUs is left out."""
        now = {gpu.index: gpu.health.energy_j for gpu in gpus if gpu.health.energy_j is not None}
        spent = {index: self._since(index, joules) for index, joules in now.items()}
        self._counters |= now  # after a reading that failed, the next one has the energy of both intervals
        held: dict[int, int] = {}
        for job in jobs.values():
            for index in job.gpus or ():
                held[index] = held.get(index, 0) + 1
        used: dict[tuple[int, int], float] = {}
        for job in jobs.values():
            own = [spent[index] / held[index] for index in job.gpus or () if index in spent]
            if own:
                key = (job.job_id, job.restart)
                used[key] = self._used.get(key, 0.0) + sum(own)
        present = {(job.job_id, job.restart) for job in jobs.values()}
        self._keep(present, used)
        return {key: joules for key, joules in self._used.items() if key in present}

    def _keep(self, present: Set[tuple[int, int]], used: dict[tuple[int, int], float]) -> None:
        """Note the joules of the runs with a counter. A run without one in this reading, or that is absent, keeps what it has."""
        self._absent = {key: self._absent.get(key, 0) + 1 for key in self._used if key not in present}
        over = {key for key, readings in self._absent.items() if readings > _KEPT_READINGS}
        self._used = {key: joules for key, joules in self._used.items() if key not in over} | used

    def _since(self, index: int, joules: float) -> float:
        """Return the joules since the last reading. A counter that fell began anew: the driver was loaded again."""
        before = self._counters.get(index)
        if before is None:
            return 0.0
        return joules - before if joules >= before else joules
