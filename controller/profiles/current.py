"""How much the jobs that run now are in each other's way: what is known of each, by run. Pure, but for what it reads.

A job's contention sensitivity (CS) is that of its newest window, as long as that tells of now: not for long, and not beyond the
coming or going of a neighbour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import nan

from controller.profiles.ideal import ideal_of
from controller.profiles.reader import ProfileReader
from controller.profiles.sensitivity import Ideal, IdealSource, Priors, Sensitivity, sensitivity
from controller.profiles.windows import RunKey, SlurmRun, Throughput
from controller.slurm.client import Phase, SlurmJob, SlurmSnapshot

FRESH_WINDOWS = 5
"""A window tells of now for so many times its length, the time until it is worked out included."""
_AT_A_RUN = frozenset({Phase.RUNNING, Phase.SUSPENDED})


@dataclass(frozen=True, slots=True)
class Contention:
    """What one run does now."""

    window: Throughput
    """The newest."""
    sensitivity: Sensitivity | None
    """None: it is not known what the job would do alone."""

    @property
    def value(self) -> float:
        """CS; NaN: not known."""
        return nan if self.sensitivity is None else self.sensitivity.value

    @property
    def confidence(self) -> float:
        """Of CS, from 0 to 1; 0: not known."""
        return 0.0 if self.sensitivity is None else self.sensitivity.ideal.confidence

    @property
    def source(self) -> str:
        """Where the ideal is from: alone, store or predicted; empty: not known."""
        return "" if self.sensitivity is None else self.sensitivity.ideal.source.value


Known = Mapping[RunKey, Contention]
"""Of running jobs of which something is known."""
NOTHING: Known = {}


def run_of(job: SlurmJob) -> RunKey | None:
    """The present run of a job, as the store names it; None where Slurm did not tell its number."""
    return None if job.raw_id is None else RunKey(job.raw_id, job.restarts)


def jobs_by_node(snapshot: SlurmSnapshot) -> dict[str, list[int]]:
    """Slurm's own numbers of the jobs that hold something, by node."""
    found: dict[str, list[int]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.allocated and job.raw_id is not None and job.phase.holds_nodes:  # of most jobs the first is false
            for share in job.allocated:
                found[share.node].append(job.raw_id)
    return dict(found)


def runs_now(snapshot: SlurmSnapshot) -> list[SlurmRun]:
    """The runs that Slurm's jobs are at. One that is completing may count its next restart already, with this one's start."""
    found = []
    for job in snapshot.jobs:
        run = run_of(job) if job.phase in _AT_A_RUN else None
        if run is not None and job.start_time_s is not None:
            found.append(SlurmRun(run, job.start_time_s))
    return found


def newest(store: ProfileReader, since_s: float, present: Mapping[str, Collection[int]]) -> dict[RunKey, Throughput]:
    """The newest window since then of each run that is there, if those who are near are those that were near in it."""
    there = {job_id for jobs in present.values() for job_id in jobs}
    return {item.run: item for item in store.newest_of_runs(since_s) if _as_it_was(item, present, there)}


def _as_it_was(item: Throughput, present: Mapping[str, Collection[int]], there: Collection[int]) -> bool:
    """Whether nobody has come to its nodes since, or left them. (Who shares a link elsewhere is only known to be there.)"""
    near = {other.run.job_id for other in item.neighbours}
    here = {job_id for node in item.nodes for job_id in present.get(node, ())}
    return item.run.job_id in here and here <= near | {item.run.job_id} and near <= set(there)


def contention(store: ProfileReader, window: Throughput, priors: Priors) -> Contention:
    """Of one run in that window. Alone it does what it would do alone, whatever slows it down besides: CS is 1."""
    if window.alone:
        own = Ideal(window.steps_per_s, IdealSource.ALONE, confidence=1.0, samples=1)
        return Contention(window, sensitivity(window.steps_per_s, own))
    ideal = ideal_of(store, window.run.job_id, window.trained, window.shape, window.nodes, priors)
    return Contention(window, sensitivity(window.steps_per_s, ideal))
