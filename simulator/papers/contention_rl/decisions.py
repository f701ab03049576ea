"""Decisions of policies as actions of `headway/Contention-v0`.

A candidate is the first waiting job of its number of GPUs. Where a policy starts a later one, the candidate stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from policies.learned.contention_rl.placement_actions import PlacementActions
from policies.model import Placement
from simulator.engine.simulation import Simulation
from simulator.envs.base import Mask
from simulator.envs.decisions import StartMapping
from simulator.kernel.job import ActiveJob
from simulator.traces.trace import Trace


class Choices(Protocol):
    """The environment, as far as decisions need it."""

    simulation: Simulation
    trace: Trace

    @property
    def candidates(self) -> Sequence[ActiveJob]:
        """The jobs that can be started."""

    @property
    def placements(self) -> PlacementActions[ActiveJob]:
        """The placements of a candidate, by number."""

    def action_masks(self) -> Mask:
        """Return which actions are possible now."""


class ContentionMapping(StartMapping[Choices]):
    """See `simulator.envs.decisions`."""

    def starts(self) -> Iterator[tuple[int, ActiveJob, Placement]]:
        """Return the possible starts: action, job and placement."""
        mask, choice = self._env.action_masks(), self._env.placements
        for which, job in enumerate(self._env.candidates):
            for number in range(choice.size):
                action = 1 + which * choice.size + number
                where = choice.place(job, number) if mask[action] else None
                if where is not None:
                    yield action, job, Placement.of(zip(*where, strict=True))

    def stands_for(self, job: ActiveJob, wanted: int) -> bool:
        """Return whether both ask for the same number of GPUs."""
        return bool(self._env.trace.num_gpus[wanted] == job.gpus)

    def may_wait(self) -> bool:
        """Return True: waiting is always possible."""
        return True
