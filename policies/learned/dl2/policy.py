"""DL2 on a cluster: the trained agent divides the GPUs among elastic jobs, slot by slot.

Source: DL2 (Peng et al., TPDS 2021), sections 4 and 7. In every slot the agent gives one worker after the other, as in its
environment, to at most J jobs at once by arrival; placements follow by best fit. Jobs are resized by a preemption, so a job keeps
its size for a slot at least. Jobs of fixed size take part with that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from policies.api import Decision, PolicySpec
from policies.learned.dl2.serving import Served
from policies.learned.dl2.slot_state import SlotState
from policies.learned.dl2.state_columns import WORKER, StateColumns
from policies.learned.dl2.system import trained_network
from policies.learned.training.agents import Logits
from policies.model import ClusterState
from policies.options import layout_named, number
from policies.ordering.resizing import Resizer, ranges
from policies.placement.rules import placement_rule

ALL_REDUCE = "dl2-all-reduce"
"""The weights that come with Headway for jobs without parameter servers."""
SOURCE = "DL2: A Deep Learning-Driven Scheduler for Deep Learning Clusters (Peng et al., TPDS 2021)"


class Dl2:
    """Divides the GPUs among elastic jobs by a trained network, in slots; for all-reduce jobs (servers masked)."""

    def __init__(self, weights: str = "", round_s: float = 1200.0, layout: str = "consolidated") -> None:
        """`weights` is the folder of a policy training; without one, the weights that come with Headway.

        `round_s` is the length of a slot (20 minutes). Raises WeightsError.
        """
        self._network, self._columns = load(weights)
        self._slot_s = number("round_s", round_s, unit="seconds")
        self._resizer = Resizer(placement_rule(layout_named(layout)), self._slot_s, "the agent gave it so many GPUs")
        self.spec = PolicySpec(name="dl2", source=SOURCE, preempts=True, resizes=True, round_s=self._slot_s)

    def decide(self, state: ClusterState) -> Decision:
        """Give tasks to jobs until the agent stops, then place the jobs."""
        low, high = (column.tolist() for column in ranges(state))

        def shares(order: Sequence[int], gpus: int) -> dict[int, int]:
            slot = SlotState(state, self._columns, self._slot_s, low, high)
            slot.free = gpus
            for first in range(0, len(order), self._columns.jobs):
                self._serve(slot, order[first : first + self._columns.jobs])
            return slot.sizes

        return self._resizer.decide(state, shares)

    def _serve(self, slot: SlotState, batch: Sequence[int]) -> None:
        """Give tasks to the jobs of one batch."""
        while True:
            seen, mask = slot.show(batch)
            if not mask[:-1].any():
                return
            with torch.inference_mode():
                logits = self._network(torch.from_numpy(seen[None]), torch.from_numpy(mask[None]))[0]
                action = int(logits.masked_fill(~torch.from_numpy(mask), -torch.inf).argmax())
            if action == self._columns.actions - 1:
                return
            place, kind = divmod(action, 3)
            assert kind == WORKER, "all other kinds are masked"
            slot.give(batch[place])


def load(folder: str) -> tuple[Logits, StateColumns]:
    """Return the served network in that folder, and the columns of its states. Raises WeightsError."""
    network, columns, _ = trained_network(folder, ALL_REDUCE)
    return Served(network, columns), columns
