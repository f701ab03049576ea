"""Begin and end of a slot: the resources that jobs get anew, and what changes on the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.options import ElasticOptions
from simulator.papers.dl2.servers import Footprints
from simulator.papers.dl2.tasks import Tasks, Where


@dataclass(frozen=True, slots=True)
class Start:
    """A job that is to run with these tasks from now on."""

    job: ActiveJob
    workers: Where
    servers: Where


@dataclass(frozen=True, slots=True)
class Changes:
    """Stops and starts that carry out an allocation. Invariant: a job that keeps its tasks is in neither list."""

    stops: tuple[ActiveJob, ...]
    """Running jobs that lose or change their tasks."""
    starts: tuple[Start, ...]
    """Jobs that run with new tasks; those in `stops` too are resized or moved."""


def empty_tasks(options: ElasticOptions, gpus: Sequence[int], cpus: Sequence[int], up: Sequence[int]) -> Tasks:
    """Return the tasks of a slot in which nothing is given yet. `up` is 0 for a node that is down."""
    return Tasks(gpus, cpus, up, worker_cpus=options.worker_cpus, server_cpus=options.server_cpus, rule=options.placing)


def keep_fixed(tasks: Tasks, jobs: Sequence[ActiveJob], footprints: Footprints) -> None:
    """Let running jobs that must not be stopped keep their tasks."""
    for job in jobs:
        if job.fixed and job.occupied:
            tasks.keep(job.index, workers_of(job), dict(footprints.of[job.index]))


def workers_of(job: ActiveJob) -> Where:
    """Return the job's workers since the last slot, by node; empty if it does not run."""
    return dict(zip(job.nodes, job.counts, strict=True)) if job.occupied else {}


def changes(jobs: Sequence[ActiveJob], tasks: Tasks, footprints: Footprints, min_workers: Sequence[int]) -> Changes:
    """Return what changes when these jobs get these tasks.

    A job runs with `min_workers` of the trace and at least one server; an all-reduce job needs no server.
    """
    stops, starts = [], []
    for job in jobs:
        workers, servers = tasks.workers(job.index), tasks.servers(job.index)
        if job.occupied:
            if workers == workers_of(job) and servers == footprints.of[job.index]:
                continue
            stops.append(job)
        has_servers = bool(servers) or footprints.is_all_reduce(job.index)
        if has_servers and sum(workers.values()) >= min_workers[job.index]:
            starts.append(Start(job, workers, servers))
    return Changes(tuple(stops), tuple(starts))


def count_change(start: Start, before: Mapping[int, int] | None) -> None:
    """Count a resize or a move instead of a preemption, if the job was stopped only for that.

    `before` are its servers before; None if it did not run.
    """
    if before is None:
        return
    job = start.job
    job.stops -= 1
    if sum(start.workers.values()) == job.last_occupied and sum(start.servers.values()) == sum(before.values()):
        job.moves += 1
    else:
        job.resizes += 1
