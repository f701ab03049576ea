"""DL2's policy network and value network: each two hidden layers of 256 neurons with ReLU (section 6.2 of the paper).

The paper gives no scale of the inputs. Here each number x of a state is log(1 + x), with shares times 100: counts, epochs and
shares are then of similar size.

The paper's networks see a state as one row of numbers (`flat`), so they learn anew for each of the J places what a job of some type
needs. Not in the paper: `shared` networks apply the same weights to each job (`shared_network`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.learned.algorithms.networks import perceptron
from policies.learned.dl2.shared_network import SharedNetwork
from policies.learned.dl2.state_columns import StateColumns

FLAT, SHARED = "flat", "shared"
NETWORKS = (FLAT, SHARED)
_PERCENT = 100.0


class DL2Network(nn.Module):
    """An `algorithms.networks.ActorCritic`: the two networks share no weights."""

    def __init__(
        self, columns: StateColumns, neurons: int, layers: int, *, kind: str = FLAT, value_per_job: bool = False
    ) -> None:
        """Each network has so many hidden layers of so many neurons; `shared` ones have two.

        With `value_per_job`, the value of a state is the sum of a value for each of its jobs, whose network is a shared one.
        """
        super().__init__()
        rows, width = columns.shape
        hidden = (neurons,) * layers
        self._share = columns.share
        self.actor: nn.Module
        self.critic: nn.Module
        if kind == SHARED:
            self.actor = SharedNetwork(columns, neurons, 3, void=True)
        else:
            self.actor = perceptron((rows * width, *hidden, columns.actions), nn.ReLU, last_gain=0.01)
        if value_per_job:
            self.critic = SharedNetwork(columns, neurons, 1, void=False)
        else:
            self.critic = perceptron((rows * width, *hidden, 1), nn.ReLU, last_gain=1.0)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of all actions (B, 3 J + 1), nothing masked, and values (B)."""
        seen = self._seen(states)
        return self.actor(seen), self.critic(seen).sum(1)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits alone, without the work of the value network."""
        found: Tensor = self.actor(self._seen(states))
        return found

    def values(self, states: Tensor) -> Tensor:
        """Return the values alone (B), without the work of the policy network."""
        return self.job_values(states).sum(1)

    def job_values(self, states: Tensor) -> Tensor:
        """Return the value of each job (B, J), 0 in rows without a job; of a network without them, that of the state (B, 1)."""
        found: Tensor = self.critic(self._seen(states))
        return found

    def _seen(self, states: Tensor) -> Tensor:
        scaled = states.clone()
        scaled[:, :, self._share] *= _PERCENT
        return torch.log1p(scaled).flatten(1)
