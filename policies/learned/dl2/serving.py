"""The policy network in service: the likeliest action, and a pair where nothing would run without one."""

from __future__ import annotations

import torch
from torch import Tensor

from policies.learned.algorithms.distribution import IMPOSSIBLE
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.state_columns import BOTH, SERVER, StateColumns


class Served:
    """Logits for `agents.NetworkAgent`. Invariant: where a pair is possible, void is not chosen while no shown job can train.

    Without that, a network whose likeliest action is void in the first state of a slot would leave all jobs waiting for ever: the
    next slot shows the same state. In training actions are drawn, so it does not happen there.
    """

    def __init__(self, network: DL2Network, columns: StateColumns) -> None:
        self._network = network
        self._columns = columns

    def __call__(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return the logits of a batch of states."""
        logits = self._network.logits(states)
        kinds = masks[:, :-1].reshape(-1, self._columns.jobs, 3)
        workers, servers = states[:, :, self._columns.workers], states[:, :, self._columns.servers]
        trains = ((workers > 0) & ((servers > 0) | ~kinds[:, :, SERVER])).any(1)
        pairs = torch.zeros_like(masks)
        pairs[:, BOTH:-1:3] = kinds[:, :, BOTH]
        others = masks.clone()
        others[:, -1] = ~others[:, :-1].any(1)
        useful = torch.where(pairs.any(1, keepdim=True), pairs, others)
        found: Tensor = logits.masked_fill(~useful & ~trains.unsqueeze(1), IMPOSSIBLE)
        return found
