"""Base class of rules that act for schedulers, and the game that they play."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from simulator.papers.marl.state.jobs import Floats, Jobs
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World


class Rule(ABC):
    """Acts for any scheduler. Where no group of its partition has room for a task, it forwards the task to the scheduler with the
    most free GPUs; the paper does not say where its baselines forward to."""

    def begin(self, world: World, seed: int) -> None:  # noqa: ARG002 - for rules that draw
        """Begin an episode."""
        self.world = world

    def act(self, scheduler: int) -> int:
        """Return the action for the scheduler's first task."""
        return int(self.preferences(scheduler).argmin())

    def preferences(self, scheduler: int) -> Floats:
        """Return a score of each action for the scheduler's first task: the least is the best, infinite ones are never taken."""
        world, possible = self.world, self.world.possible(scheduler)
        groups = world.center.groups_each
        task = world.head(scheduler)
        assert task is not None
        found = np.full(len(possible), np.inf)
        if possible[:groups].any():
            found[:groups] = np.where(possible[:groups], self.scores(scheduler, task), np.inf)
        else:
            free = (world.center.group_gpus - world.placed.gpus).reshape(-1, groups).sum(1)
            found[groups + int(np.where(possible[groups:], free, -1).argmax())] = 0.0
        return found

    @abstractmethod
    def scores(self, scheduler: int, task: Task) -> Floats:
        """Return a finite score of each group of the scheduler's partition; the lowest with room is chosen, on ties the first."""


def play(world: World, jobs: Jobs, rule: Rule, seed: int) -> int:
    """Play a whole episode; return the number of decisions."""
    world.begin(jobs)
    rule.begin(world, seed)
    decisions = 0
    while not world.is_over:
        for scheduler in range(world.center.schedulers):
            while world.head(scheduler) is not None:
                world.act(scheduler, rule.act(scheduler))
                decisions += 1
        if world.queues.is_empty:
            world.advance()
    return decisions
