"""State and actions of `headway/ElasticAllocation-v0`, as the agent knows them: rows of jobs, and a task for one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt
from numpy import float32

States = npt.NDArray[float32]
WORKER, SERVER, BOTH = 0, 1, 2
"""Kinds of actions: action 3 i + kind gives job i one worker, one server, or one of each."""


@dataclass(frozen=True, slots=True)
class StateColumns:
    """A state is J rows, one for each job by arrival, of L one-hot types and (d, e, r, w, u); rows without a job are 0."""

    jobs: int
    """J."""
    types: int
    """L."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a state."""
        return self.jobs, self.types + 5

    @property
    def actions(self) -> int:
        """Number of actions; the last one is void."""
        return 3 * self.jobs + 1

    @property
    def epochs(self) -> int:
        """Column of e, the epochs left."""
        return self.types + 1

    @property
    def share(self) -> int:
        """Column of r, the share of the dominant resource."""
        return self.types + 2

    @property
    def workers(self) -> int:
        """Column of w, the workers in this slot."""
        return self.types + 3

    @property
    def servers(self) -> int:
        """Column of u, the parameter servers in this slot."""
        return self.types + 4
