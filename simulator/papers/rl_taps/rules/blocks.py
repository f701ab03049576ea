"""A control that sees no more than the agent: one GPU for each slot, and blocks for jobs that gain by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.learned.rl_taps.blocks_rule import actions_of
from policies.learned.training.agents import Mask
from simulator.papers.rl_taps.rules.agent import NO_SLOT, Actions, RlTapsAgent


class Blocks(RlTapsAgent):
    """One GPU for each job, and two blocks for jobs that prove faster on many; by the image alone (`blocks_rule`)."""

    def act(self, observation: Any, mask: Mask | None) -> Actions:  # noqa: ARG002 - the protocol
        """See RlTapsAgent."""
        found: Actions = actions_of(self.batch.columns, np.asarray(observation)[None])[0]
        return found

    def slots_of_gpus(self) -> Actions:
        """See RlTapsAgent."""
        found: Actions = actions_of(self.batch.columns, self.batch.images())[0] - 1
        return found


class OneEach(RlTapsAgent):
    """Gives each slot one GPU, always the same; the others stay free."""

    def slots_of_gpus(self) -> Actions:
        """See RlTapsAgent."""
        found = np.full(self.batch.links.num_gpus, NO_SLOT)
        slots = min(self.batch.options.slots, len(found))
        found[:slots] = np.arange(slots)
        return found
