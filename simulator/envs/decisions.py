"""Mappings from a policy's decision to the actions of an environment.

A policy returns a whole allocation (`policies.api.Decision`); an environment takes one action a step. A `DecisionMapping` returns
the actions that carry out a decision. Each environment with jobs has its own; `mapping_of` finds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
import numpy as np

from policies.api import Decision
from policies.model import ClusterState, Placement
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob

WAIT = 0


@dataclass(frozen=True, slots=True)
class MappedAction:
    """One action towards a decision."""

    action: int
    ends_decision: bool = False
    """Time may advance with this action: the policy decides again before the next one."""
    deviation: str = ""
    """A sentence that says how the action differs from the decision; empty where it does not."""


class DecisionMapping(Protocol):
    """The mapping of one environment; it lives as long as the environment, over many episodes."""

    def instant(self) -> int:
        """Return a number that changes whenever time has advanced."""

    def state(self) -> ClusterState:
        """Return the present state, restricted to what actions can do: where none stops a job, none is preemptible."""

    def begin(self, decision: Decision) -> None:
        """Take the decision about `state()`; the next actions carry it out."""

    def next(self) -> MappedAction:
        """Return the next action. It is possible now, and equal decisions give equal actions."""


class Simulated(Protocol):
    """An environment that simulates jobs."""

    simulation: Simulation


EnvT = TypeVar("EnvT", bound=Simulated)


class StartMapping(ABC, Generic[EnvT]):
    """A mapping for environments whose actions start one waiting job each, or wait (action 0).

    What no action does is not in the state: jobs are shown as not preemptible and not elastic. A start that cannot be expressed
    exactly is replaced by the nearest one: of the wanted job, or of a job that stands for it, with most of its GPUs where the
    decision has them. While nothing runs, some job always starts if one can.
    """

    def __init__(self, env: EnvT) -> None:
        self._env = env
        self._wanted: dict[int, Placement] = {}
        """Starts that are still to be carried out, by job, in the order of the decision."""
        self._problem = ""

    @property
    def simulation(self) -> Simulation:
        """The simulation of the present episode."""
        return self._env.simulation

    @abstractmethod
    def starts(self) -> Iterator[tuple[int, ActiveJob, Placement]]:
        """Return the possible starts: action, job and placement, the default placement of a job first."""

    @abstractmethod
    def stands_for(self, job: ActiveJob, wanted: int) -> bool:
        """Return whether the start of that job is as good as that of the wanted one, where the wanted one cannot be named."""

    @abstractmethod
    def may_wait(self) -> bool:
        """Return whether waiting is possible."""

    def instant(self) -> int:
        """See DecisionMapping."""
        return self.simulation.loop.now

    def state(self) -> ClusterState:
        """Return the state with every job as not preemptible and of a fixed number of GPUs."""
        state = self.simulation.state()
        fixed = np.zeros(len(state.jobs), dtype=np.bool_)
        return replace(state, jobs=replace(state.jobs, preemptible=fixed, min_gpus=None, max_gpus=None))

    def begin(self, decision: Decision) -> None:
        """See DecisionMapping. A decision to stop or move a running job is a deviation."""
        jobs = self.simulation.jobs()
        self._problem = ""
        self._wanted = {jobs[row].index: where for row, where in decision.allocation.items() if not jobs[row].occupied}
        for row, job in enumerate(jobs):
            wanted = decision.allocation.get(row)
            occupied = dict(zip(job.nodes, job.counts, strict=True)) if job.state == RUNNING else None
            if occupied is not None and (wanted is None or dict(wanted.items()) != occupied):
                self._problem = f"the policy stops or moves job {self._id(job.index)}, and no action does that"

    def next(self) -> MappedAction:
        """See DecisionMapping."""
        problem, self._problem = self._problem, ""
        starts = list(self.starts())
        for index, where in self._wanted.items():
            for action, job, placement in starts:
                if job.index == index and placement == where:
                    del self._wanted[index]
                    return MappedAction(action, deviation=problem)
        for index in self._wanted:
            found = self._nearest(index, starts)
            if found is not None:
                return found
        # What cannot start now may be possible after other starts, so it is given up only when nothing else can start.
        problem = problem or "".join(f"no action starts job {self._id(index)} now" for index in list(self._wanted)[:1])
        self._wanted = {}
        if not starts or (self.may_wait() and self.simulation.loop.running):
            return MappedAction(WAIT, ends_decision=True, deviation=problem)
        action, job, _ = starts[0]
        return MappedAction(action, deviation=problem or f"no job runs, so job {self._id(job.index)} has to start")

    def _nearest(self, index: int, starts: list[tuple[int, ActiveJob, Placement]]) -> MappedAction | None:
        """Return the nearest possible start, the wanted job itself if possible."""
        where = dict(self._wanted[index].items())
        near = [each for each in starts if each[1].index == index]
        near = near or [each for each in starts if self.stands_for(each[1], index)]
        if not near:
            return None
        action, job, placement = max(near, key=lambda each: sum(min(n, where.get(k, 0)) for k, n in each[2].items()))
        if job.index != index and job.index in self._wanted:
            # The other job is wanted too, elsewhere: the two change places.
            self._wanted[index] = self._wanted.pop(job.index)
        else:
            del self._wanted[index]
        wanted = f"the policy starts job {self._id(index)} on {_text(where)}"
        nearest = f"the nearest action starts job {self._id(job.index)} on {_text(dict(placement.items()))}"
        return MappedAction(action, deviation=f"{wanted}, and {nearest}")

    def _id(self, index: int) -> str:
        return self.simulation.trace.job_ids[index]


def mapping_of(env: gymnasium.Env[Any, Any]) -> DecisionMapping:
    """Return the environment's mapping. Raises SettingError for an environment that has none."""
    make = getattr(env.unwrapped, "decision_mapping", None)
    if make is None:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        raise SettingError(
            f"policies cannot act in {name}: it has no mapping from their decisions to its actions; give the environment a method "
            "decision_mapping, or an agent that acts in it"
        )
    mapping: DecisionMapping = make()
    return mapping


def _text(counts: dict[int, int]) -> str:
    return " + ".join(f"{gpus} GPUs of node {node}" for node, gpus in sorted(counts.items()))
