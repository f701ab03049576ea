"""Decisions of policies as actions of `headway/ElasticAllocation-v0`: DL2's unrolling of an allocation into increments.

A job gets as many workers as the decision gives it GPUs, and as many parameter servers as it gives it servers. If it gives none,
each worker gets one while there is room for one, else it is alone. Workers and servers are given in pairs as far as possible (the
bundle action, or one after the other without it); an all-reduce job gets workers only. On which nodes these run is the
environment's choice, so a decision's nodes are not compared. A policy sees the jobs as they ran in the last slot, with their
servers and epochs, and may stop and resize them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from policies.api import Decision
from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER
from policies.model import ClusterState
from simulator.engine.simulation import Simulation
from simulator.envs.base import Mask
from simulator.envs.decisions import MappedAction
from simulator.papers.dl2.observation import Observation
from simulator.papers.dl2.options import ElasticOptions
from simulator.papers.dl2.perturbation import Perturbation
from simulator.papers.dl2.progress import EpochProgress
from simulator.papers.dl2.servers import Footprints
from simulator.papers.dl2.training_columns import training_columns
from simulator.traces.trace import Trace


class Slot(Protocol):
    """The environment, as far as decisions need it."""

    simulation: Simulation
    trace: Trace
    options: ElasticOptions
    perturbation: Perturbation
    footprints: Footprints
    shown: Observation
    progress: EpochProgress

    def action_masks(self) -> Mask:
        """Return which actions are possible now."""

    def shown_tasks(self) -> list[tuple[int, int]]:
        """Return the jobs that the state shows, by row: the job's row in the trace, and its servers in this slot."""


class ElasticMapping:
    """A `simulator.envs.decisions.DecisionMapping`."""

    def __init__(self, env: Slot) -> None:
        self._env = env
        self._missing: dict[int, int] = {}
        """Workers that the decision gives to each job, less those that it has in this slot."""
        self._servers: dict[int, int] = {}
        """The same for servers, of jobs to which the decision gives some."""
        self._problem = ""

    def instant(self) -> int:
        """Return the time of the slot."""
        return self._env.simulation.loop.now

    def state(self) -> ClusterState:
        """Return the state at the beginning of the slot, with run times that follow from users' statements and from types."""
        state = self._env.simulation.state()
        options, jobs = self._env.options, self._env.simulation.jobs()
        columns: Any = training_columns(jobs, self._env.progress, self._env.footprints)
        state = replace(state, jobs=replace(state.jobs, **columns))
        if not (options.epoch_error or options.speed_variation):
            return state
        expected_s = self._env.perturbation.expected_s[[job.index for job in jobs]]
        return replace(state, jobs=replace(state.jobs, duration_estimate_s=expected_s))

    def begin(self, decision: Decision) -> None:
        """Take the decision of the slot. Workers that did not fit in the slot before are a deviation of this one's first action."""
        self._problem = self._lacking("lacked {} workers in the slot before")
        jobs = self._env.simulation.jobs()
        wanted = [(jobs[row], where.num_gpus) for row, where in decision.allocation.items()]
        self._missing = {job.index: gpus - (job.occupied if job.fixed else 0) for job, gpus in wanted}
        self._servers = {
            jobs[row].index: 0 if jobs[row].fixed and jobs[row].occupied else where.num_servers
            for row, where in decision.allocation.items()
            if where.servers
        }

    def next(self) -> MappedAction:
        """Return the next increment of the first shown job that lacks one; void when none can have more."""
        problem, self._problem = self._problem, ""
        mask = self._env.action_masks()
        shown = self._env.shown_tasks()
        for row, (job, servers) in enumerate(shown):
            for kind in self._kinds(row, job, servers):
                if mask[3 * row + kind]:
                    self._missing[job] -= kind != SERVER
                    if job in self._servers:
                        self._servers[job] -= kind != WORKER
                    return MappedAction(3 * row + kind, deviation=problem)
        problem = problem or self._lacking("lacks {} workers, for which there is no room", [job for job, _ in shown])
        self._missing = {job: missing for job, missing in self._missing.items() if job not in dict(shown)}
        return MappedAction(len(mask) - 1, deviation=problem)

    def _kinds(self, row: int, job: int, servers: int) -> tuple[int, ...]:
        """Return the kinds of actions that bring that job nearer to the decision, best first; none: it has all."""
        workers_left, servers_left = self._missing.get(job, 0) > 0, self._servers.get(job, 0) > 0
        if job in self._servers:
            both = (BOTH,) if workers_left and servers_left and self._env.options.bundle else ()
            return (*both, *((SERVER,) if servers_left else ()), *((WORKER,) if workers_left else ()))
        if not workers_left:
            return ()
        if self._env.footprints.is_all_reduce(job):
            return (WORKER,)
        if self._env.options.bundle:
            return (BOTH, WORKER) if servers else (BOTH,)
        workers = self._env.shown.state[row, self._env.shown.w]
        if not servers:
            return (SERVER,)
        return (WORKER,) if servers > workers else (SERVER, WORKER)

    def _lacking(self, text: str, among: list[int] | None = None) -> str:
        """Describe the first of these jobs (None: all) that lacks workers; empty if none does."""
        for job, missing in self._missing.items():
            if missing > 0 and (among is None or job in among):
                return f"job {self._env.trace.job_ids[job]} {text.format(missing)}"
        return ""
