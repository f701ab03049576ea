"""The policy network in service without the bundle action: the first pair of a slot is completed before anything else is given."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from policies.learned.dl2.state_columns import SERVER, WORKER, StateColumns


class _Served(Protocol):
    def __call__(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return logits."""


class ServedWithoutBundle:
    """Logits for `agents.NetworkAgent`. Invariant: while no shown job can train, only a part of one pair is possible.

    Without that, a network that prefers servers could give all cores to servers, so that no worker fits and no job ever trains.
    """

    def __init__(self, served: _Served, columns: StateColumns) -> None:
        self._served = served
        self._columns = columns

    def __call__(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return the logits of a batch of states."""
        kinds = masks[:, :-1].reshape(-1, self._columns.jobs, 3)
        workers, servers = states[:, :, self._columns.workers], states[:, :, self._columns.servers]
        trains = ((workers > 0) & ((servers > 0) | ~kinds[:, :, SERVER])).any(1, keepdim=True)
        begun = kinds[:, :, WORKER] & (workers == 0) & (servers > 0)
        alone = kinds[:, :, WORKER] & ~kinds[:, :, SERVER] & (workers == 0)
        fresh = kinds[:, :, SERVER] & kinds[:, :, WORKER]
        parts = torch.zeros_like(kinds)
        has_begun = begun.any(1, keepdim=True)
        parts[:, :, WORKER] = torch.where(has_begun, begun, alone)
        parts[:, :, SERVER] = fresh & ~has_begun
        useful = torch.cat([parts.flatten(1), torch.zeros_like(masks[:, -1:])], 1)
        narrowed = torch.where(trains | ~useful.any(1, keepdim=True), masks, useful)
        logits = self._served(states, narrowed)
        return logits.masked_fill(~narrowed, torch.finfo(logits.dtype).min)
