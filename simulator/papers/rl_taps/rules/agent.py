"""Base class of agents that act in `headway/RlTaps-v0` by a rule, and what they see of the cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from policies.learned.training.agents import Mask
from simulator.errors import SettingError
from simulator.papers.rl_taps.batch import RlTapsBatch
from simulator.papers.rl_taps.env import RlTapsEnv

Actions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NO_SLOT = -1


class RlTapsAgent(ABC):
    """An `Agent` of one environment."""

    deviations = 0

    def __init__(self) -> None:
        self.batch: RlTapsBatch

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Begin an episode. Raises SettingError for another environment."""
        if not isinstance(env.unwrapped, RlTapsEnv):
            raise SettingError("the rules of RL-TAPS act in headway/RlTaps-v0; give that as --env")
        self.batch = env.unwrapped.batch

    def act(self, observation: Any, mask: Mask | None) -> Actions:  # noqa: ARG002 - the protocol
        """Return the slot of each GPU, 0 for none."""
        return self.slots_of_gpus() + 1

    @abstractmethod
    def slots_of_gpus(self) -> Actions:
        """Return the slot of each GPU, from 0 on; NO_SLOT for none."""

    @property
    def jobs(self) -> list[int]:
        """Slots that have a job, in order."""
        return np.flatnonzero(self.batch.slots[0] != self.batch.none).tolist()

    def of_slot(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return that column of the jobs in the slots, 0 for none."""
        found: npt.NDArray[Any] = column[0, self.batch.slots[0]]
        return found

    def gpus_of(self, slot: int) -> Flags:
        """Return the GPUs that the job of a slot had in the last step; with full preemption."""
        found: Flags = self.batch.owner[0] == slot
        return found
