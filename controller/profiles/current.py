"""Present contention of running jobs, by run. Pure functions, except for reading the store.

A job's contention sensitivity (CS) is that of its newest window. It is valid for a short time, and only until a neighbour comes or
goes.
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
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase, SlurmJob

FRESH_WINDOWS = 5
"""A window describes the present for this many times its length, including the time until it is computed."""
WITH_A_RUN = frozenset({Phase.RUNNING, Phase.SUSPENDED})
"""Phases in which a job has a run. A completing job is left out, because it may already count the next restart."""


@dataclass(frozen=True, slots=True)
class Contention:
    """Present speed and contention of one run."""

    window: Throughput
    """The newest window."""
    sensitivity: Sensitivity | None
    """None: the job's speed without neighbours is not known."""

    @property
    def value(self) -> float:
        """Contention sensitivity; NaN when it is not known."""
        return nan if self.sensitivity is None else self.sensitivity.value

    @property
    def confidence(self) -> float:
        """Confidence of the sensitivity, from 0 to 1; 0 when it is not known."""
        return 0.0 if self.sensitivity is None else self.sensitivity.ideal.confidence

    @property
    def source(self) -> str:
        """Source of the ideal speed: alone, store or predicted; empty when it is not known."""
        return "" if self.sensitivity is None else self.sensitivity.ideal.source.value


ContentionByRun = Mapping[RunKey, Contention]
"""Contention of the running jobs that were measured."""
NO_CONTENTION: ContentionByRun = {}


def run_of(job: SlurmJob) -> RunKey | None:
    """Return the present run of a job, as the store names it; None when Slurm did not give its number."""
    return None if job.raw_id is None else RunKey(job.raw_id, job.restarts)


def jobs_by_node(snapshot: SlurmSnapshot) -> dict[str, list[int]]:
    """Return Slurm's numbers of the jobs that occupy GPUs, CPUs or memory on each node."""
    found: dict[str, list[int]] = defaultdict(list)
    for job in snapshot.jobs:
        if (
            job.allocated and job.raw_id is not None and job.phase.occupies_nodes
        ):  # the first test is false for most jobs
            for share in job.allocated:
                found[share.node].append(job.raw_id)
    return dict(found)


def present_runs(snapshot: SlurmSnapshot) -> frozenset[RunKey]:
    """Return the runs that have not ended. Of a completing job these are two: it may already count the next restart."""
    found = set()
    for job in snapshot.jobs:
        if job.allocated and job.raw_id is not None and job.phase.occupies_nodes:
            found.add(RunKey(job.raw_id, job.restarts))
            if job.phase is Phase.COMPLETING and job.restarts:
                found.add(RunKey(job.raw_id, job.restarts - 1))
    return frozenset(found)


def runs_now(snapshot: SlurmSnapshot) -> list[SlurmRun]:
    """Return the present runs of Slurm's jobs. A completing run is left out: it may already count the next restart."""
    found = []
    for job in snapshot.jobs:
        run = run_of(job) if job.phase in WITH_A_RUN else None
        if run is not None and job.start_time_s is not None:
            found.append(SlurmRun(run, job.start_time_s))
    return found


def newest(store: ProfileReader, since_s: float, present: Mapping[str, Collection[int]]) -> dict[RunKey, Throughput]:
    """Return the newest window since then of each present run whose neighbours have not changed."""
    there = {job_id for jobs in present.values() for job_id in jobs}
    return {item.run: item for item in store.newest_of_runs(since_s) if _as_it_was(item, present, there)}


def _as_it_was(item: Throughput, present: Mapping[str, Collection[int]], there: Collection[int]) -> bool:
    """Return whether the jobs on its nodes are unchanged. (Of neighbours on other nodes it only checks that they still run.)"""
    near = {other.run.job_id for other in item.neighbours}
    here = {job_id for node in item.nodes for job_id in present.get(node, ())}
    return item.run.job_id in here and here <= near | {item.run.job_id} and near <= set(there)


def contention(store: ProfileReader, window: Throughput, priors: Priors) -> Contention:
    """Return the contention of one run in that window. A job without neighbours has a sensitivity of 1."""
    if window.alone:
        own = Ideal(window.steps_per_s, IdealSource.ALONE, confidence=1.0, samples=1)
        return Contention(window, sensitivity(window.steps_per_s, own))
    ideal = ideal_of(store, window.run.job_id, window.trained, window.shape, window.nodes, priors, at_s=window.start_s)
    return Contention(window, sensitivity(window.steps_per_s, ideal))
