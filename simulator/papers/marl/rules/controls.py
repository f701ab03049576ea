"""Controls that know the world's own laws; a learned policy has to beat them."""

from __future__ import annotations

import numpy as np

from policies.options import number
from simulator.papers.marl.rules.baselines import fitting, has_tasks
from simulator.papers.marl.rules.effects import Effects
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.state.jobs import Floats
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.state.traffic import links_of


class InterferenceGreedy(Rule):
    """Places every task where it adds least slowdown, its own included, by the world's own interference model.

    Least interference first compares the levels of servers; this compares what the task changes. It ignores the network.
    """

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        effects = Effects(self.world, scheduler, task)
        return effects.added + effects.own


class ContentionGreedy(Rule):
    """Places every task where it adds least slowdown and least time of transfers, relative to computing, by the world's own laws.

    The time of transfers is that of the job's pairs so far, with the task there and with the pairs of running jobs. What the pairs
    do to other jobs is left out.
    """

    def __init__(self, transfers: float = 1.0) -> None:
        """`transfers` is the weight of transfers beside interference."""
        self._transfers = number("transfers", transfers, unit="weight")

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        effects = Effects(self.world, scheduler, task)
        return effects.added + effects.own + self._transfers * self._seconds(scheduler, task)

    def _seconds(self, scheduler: int, task: Task) -> Floats:
        """Return the seconds of transfers for each second of computing with the task on each group."""
        world = self.world
        center, jobs, placed = world.center, world.jobs, world.placed
        groups = center.groups_of(scheduler)
        servers = center.group_server[groups]
        if (placed.group[task.job] == NOWHERE).all():
            return np.zeros(len(servers))
        workers, others = placed.servers_of(task.job)
        is_worker = bool(jobs.is_worker[task.job, task.column])
        of_server: dict[int, float] = {}
        for server in np.unique(servers).tolist():
            mine = dict(workers if is_worker else others)
            mine[server] = mine.get(server, 0) + 1
            pairs = links_of(center, mine, others) if is_worker else links_of(center, workers, mine)
            of_server[server] = world.traffic.worst_with(pairs)
        worst = np.array([of_server[server] for server in servers.tolist()])
        row = np.full(len(worst), task.job)
        found: Floats = world.traffic.seconds_of(row, worst) / jobs.compute_s[task.job]
        return found


class LookaheadGreedy(ContentionGreedy):
    """Places every task by contention greedy's score, and prefers servers that have tasks of the job or room for the rest of it.

    Contention greedy does not look ahead: it spreads the first tasks of a job, whose transfers it counts too late.
    """

    def __init__(self, transfers: float = 1.0, fitting: float = 0.5, together: float = 0.5) -> None:
        """`fitting` is the weight of the share of the job's remaining tasks that fit on the server, and `together` that of tasks
        of the job that are there. Both were chosen on seeds of validation, at one and two times the paper's load."""
        super().__init__(transfers)
        self._fitting = number("fitting", fitting, unit="weight")
        self._together = number("together", together, unit="weight")

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        world = self.world
        left = int(world.jobs.tasks[task.job]) - task.column
        fits = fitting(world, scheduler, task) / left
        together = has_tasks(world, scheduler, task.job)
        return super().scores(scheduler, task) - self._fitting * fits - self._together * together
