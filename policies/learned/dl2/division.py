"""Division of the GPUs of a slot among jobs by the agent, again and again in one decision while jobs find no placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from policies.learned.dl2.slot_state import Mask, SlotState
from policies.learned.dl2.state_columns import WORKER, StateColumns, States
from policies.learned.training.agents import Logits
from policies.model import ClusterState
from policies.ordering.resizing import ranges

MOST_INFERENCES = 2000
"""Inferences of a decision after which the agent makes no further division: about 0.3 s of CPU."""


class Step(NamedTuple):
    """One action of the agent, on one state."""

    seen: States
    mask: Mask
    action: int


class AgentShares:
    """Sizes of jobs by the agent, for one decision; a `policies.ordering.resizing.Shares`.

    Invariant: a division is the agent's own, task by task, until the decision has had `MOST_INFERENCES`. A division after those
    keeps the agent's last sizes, and gives what jobs without a placement leave to others in the size that they ask for, in order of
    submission. The agent's answers for a batch are kept: a batch that begins with the same jobs and free GPUs is not asked again.

    Bound: lives for one decision.
    """

    def __init__(self, network: Logits, columns: StateColumns, state: ClusterState, slot_s: float) -> None:
        """`slot_s` is the length of a slot, seconds."""
        self._network = network
        self._columns = columns
        self._low, self._high = (column.tolist() for column in ranges(state))
        self._asked: list[int] = state.jobs.num_gpus.tolist()
        self._slot = SlotState(state, columns, slot_s, self._low, self._high)
        self._batches: dict[tuple[tuple[int, ...], int], tuple[dict[int, int], tuple[Step, ...]]] = {}
        """Sizes of the jobs of a batch, and the agent's actions, by its jobs and the GPUs that were free before it."""
        self.steps: tuple[Step, ...] = ()
        """The agent's actions in the last division; empty if that was not the agent's own."""
        self._last: dict[int, int] = {}
        self.inferences = 0
        """Inferences so far."""

    def __call__(self, order: Sequence[int], gpus: int) -> dict[int, int]:
        """Return the GPUs of each of these jobs that gets some."""
        if self.inferences >= MOST_INFERENCES:
            self._last, self.steps = self._by_rule(order, gpus), ()
            return dict(self._last)
        sizes: dict[int, int] = {}
        steps: tuple[Step, ...] = ()
        for first in range(0, len(order), self._columns.jobs):
            given, taken = self._of_batch(tuple(order[first : first + self._columns.jobs]), gpus)
            gpus -= sum(given.values())
            sizes |= given
            steps += taken
        self._last, self.steps = sizes, steps
        return dict(sizes)

    def _by_rule(self, order: Sequence[int], gpus: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for row in [*(row for row in order if row in self._last), *(row for row in order if row not in self._last)]:
            wanted = self._last.get(row) or min(max(self._asked[row], self._low[row]), self._high[row])
            size = min(wanted, gpus)
            if size >= self._low[row]:
                sizes[row] = size
                gpus -= size
        return sizes

    def _of_batch(self, batch: tuple[int, ...], gpus: int) -> tuple[dict[int, int], tuple[Step, ...]]:
        """Return what the agent gives to the jobs of one batch, of so many free GPUs, and its actions."""
        if (batch, gpus) not in self._batches:
            slot, steps = self._slot, []
            slot.sizes, slot.free = {}, gpus
            while (step := self._next(batch)) is not None:
                steps.append(step)
                if step.action == self._columns.actions - 1:
                    break
                place, kind = divmod(step.action, 3)
                assert kind == WORKER, "all other kinds are masked"
                slot.give(batch[place])
            self._batches[batch, gpus] = slot.sizes, tuple(steps)
        return self._batches[batch, gpus]

    def _next(self, batch: Sequence[int]) -> Step | None:
        """Return the agent's next action; None: it can give nothing more."""
        seen, mask = self._slot.show(batch)
        if not mask[:-1].any():
            return None
        self.inferences += 1
        with torch.inference_mode():
            logits = self._network(torch.from_numpy(seen[None]), torch.from_numpy(mask[None]))[0]
            action = int(logits.masked_fill(~torch.from_numpy(mask), -torch.inf).argmax())
        return Step(seen, mask, action)
