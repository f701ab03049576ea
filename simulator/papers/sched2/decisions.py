"""Decisions of policies as actions of `headway/Sched2-v0`.

An action names a job; packing places it. A policy that places jobs otherwise acts with other placements here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from policies.model import Placement
from simulator.engine.simulation import Simulation
from simulator.envs.base import Mask
from simulator.envs.decisions import WAIT, StartMapping
from simulator.kernel.job import ActiveJob
from simulator.papers.sched2.packing import pack


class Choices(Protocol):
    """The environment, as far as decisions need it."""

    simulation: Simulation

    @property
    def candidates(self) -> Sequence[ActiveJob]:
        """The jobs that can be started."""

    def action_masks(self) -> Mask:
        """Return which actions are possible now."""


class Sched2Mapping(StartMapping[Choices]):
    """See `simulator.envs.decisions`."""

    def starts(self) -> Iterator[tuple[int, ActiveJob, Placement]]:
        """Return the possible starts: action, job and placement."""
        pool = self._env.simulation.loop.pool
        for number, job in enumerate(self._env.candidates, 1):
            where = pack(pool, job)
            if where is not None:
                yield number, job, Placement.of(zip(*where, strict=True))

    def stands_for(self, job: ActiveJob, wanted: int) -> bool:  # noqa: ARG002 - the protocol
        """Return False: jobs differ in their times. A job that is not among those shown waits."""
        return False

    def may_wait(self) -> bool:
        """Return whether void is possible."""
        return bool(self._env.action_masks()[WAIT])
