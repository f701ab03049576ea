"""Controls of the paper's agent: a rule that places as the published code's baselines do, and one that maximizes equation 2."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from policies.api import Decision, PolicySpec
from policies.learned.training.agents import Mask
from policies.model import ClusterState, Placement
from policies.placement.best_fit import Capacity
from policies.placement.rules import PlacementRule
from policies.selection import fill
from policies.state.pair_ratios import Ratios, key_of
from simulator.kernel.job import ActiveJob
from simulator.papers.contention_rl.env import BRANCHES, ContentionEnv

_COUNTS = (4, 2)
_SAME = 1e-9


def _widest(capacity: Capacity, row: int) -> Placement | None:
    gpus = int(capacity.state.jobs.num_gpus[row])
    for count in _COUNTS:
        share, rest = divmod(gpus, count)
        nodes = sorted(node for node, room in capacity.rooms(row) if share and room >= share)[:count]
        if not rest and len(nodes) == count:
            return Placement(tuple(nodes), (share,) * count)
    return None


class Spread:
    """In order of arrival, every job that fits, on as many nodes as possible: 4, or else 2, but never 1.

    The published code's SRTF and LAS place so: of the even divisions of a job they take the widest that fits, on the first nodes.
    All jobs take an hour alone, so that SRTF without contention runs them by arrival to their end.
    """

    spec = PolicySpec("spread", "published code of contention_rl: placement of its SRTF and LAS")

    def decide(self, state: ClusterState) -> Decision:
        """Keep running jobs; start those that fit."""
        return fill(state, state.pending, placing=PlacementRule("spread", _widest))


class MostReward:
    """Takes the action after which equation 2 is highest, the first of equals; to wait only if that is better.

    It knows the pair table and looks no further than the present round.
    """

    deviations = 0

    def __init__(self) -> None:
        self._env: ContentionEnv

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Begin an episode in that environment of contention RL."""
        raw: Any = env.unwrapped
        self._env = raw

    def act(self, observation: Any, mask: Mask | None) -> int:  # noqa: ARG002 - the protocol
        """Return that action."""
        env = self._env
        assert mask is not None
        best, action = self._reward() if env.loop.running else -np.inf, 0
        for number in np.flatnonzero(mask)[1:].tolist():
            which, placement = divmod(number - 1, env.placements.size)
            job = env.candidates[which]
            where = env.placements.place(job, placement)
            assert where is not None
            reward = self._reward((self._key(job, len(where[0])), frozenset(where[0]), job.gpus))
            if reward > best + _SAME:
                best, action = reward, number
        return action

    def _reward(self, *more: tuple[str, frozenset[int], int]) -> float:
        """Return equation 2 for the running jobs and `more`: key, nodes and GPUs of a job."""
        env = self._env
        ratios = Ratios(env.options.profiles.pairs)
        jobs = [(self._key(job, len(job.nodes)), frozenset(job.nodes), job.occupied) for job in env.loop.running]
        jobs += more
        slowed = []
        for me, (key, nodes, _) in enumerate(jobs):
            near = [other for it, (other, there, _) in enumerate(jobs) if it != me and nodes & there]
            slowed.append(1.0 / min((ratios.of(key, other) for other in near), default=1.0))
        w1, w2 = BRANCHES[env.options.branch]
        return -w1 * float(np.mean(slowed)) + w2 * sum(gpus for *_, gpus in jobs) / env.cluster.num_gpus

    def _key(self, job: ActiveJob, nodes: int) -> str:
        return f"{key_of(self._env.trace.model[job.index])},{job.gpus},{nodes}"
