"""The columns of a state of SCHED2 (Luan et al., table I), for the environment and for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.placements import NUM_PLACEMENTS

JOB_NUMBERS = NUM_PLACEMENTS + 2
"""Numbers of one job: its times, GPUs, wait."""
REST_NUMBERS = 4
"""Numbers of the rest of the queue: jobs, mean GPUs, mean ideal time, mean wait."""
ABSENT = -1.0
"""Hours of a GPU that is not there: its node is down, or has fewer GPUs than the widest."""
State = npt.NDArray[np.float32]
ArrayT = TypeVar("ArrayT", npt.NDArray[np.float32], npt.NDArray[np.float64], npt.NDArray[Any])


@dataclass(frozen=True)
class StateColumns:
    """Positions in a state."""

    nodes: int
    """N."""
    gpus: int
    """M: GPUs of the widest node."""
    candidates: int
    """J."""

    @property
    def size(self) -> int:
        """Length of a state."""
        return self.nodes * self.gpus + self.candidates * JOB_NUMBERS + REST_NUMBERS

    def split(self, states: ArrayT) -> tuple[ArrayT, ArrayT, ArrayT]:
        """Return views of one state or a batch of them: GPUs (..., N, M), jobs (..., J, k + 2), the rest (..., 4)."""
        batch, end = states.shape[:-1], self.nodes * self.gpus
        gpus = states[..., :end].reshape(*batch, self.nodes, self.gpus)
        jobs = states[..., end:-REST_NUMBERS].reshape(*batch, self.candidates, JOB_NUMBERS)
        return gpus, jobs, states[..., -REST_NUMBERS:]
