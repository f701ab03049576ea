"""Deep Q-learning: double, with prioritized replay, returns over several steps, and demonstrations.

Sources: Mnih et al., "Human-level control through deep reinforcement learning" (Nature 2015); van Hasselt et al., "Deep
reinforcement learning with double Q-learning" (AAAI 2016); Schaul et al., "Prioritized experience replay" (ICLR 2016); Hester et
al., "Deep Q-learning from demonstrations" (AAAI 2018), the large-margin loss.

    a row of the memory: s, a, R = sum of gamma^i r_i over n steps, gamma^n, s' n steps later
    y    = R + gamma^n Q'(s', argmax_a Q(s', a))           Q': the target network; plain: R + gamma^n max_a Q'(s', a)
    loss = weight x huber(Q(s, a) - y) + margin_weight x large margin of demonstrated actions
    large margin = max_a [Q(s, a) + margin (a != shown)] - Q(s, shown)

A dueling network (`networks.dueling_q`) and n steps (`n_step_returns`) need nothing here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from policies.learned.algorithms.distribution import IMPOSSIBLE
from policies.learned.algorithms.losses import descend
from policies.learned.algorithms.networks import QFunction
from policies.learned.algorithms.replay import PrioritizedReplay

Network = TypeVar("Network", bound=QFunction)
LOSSES = ("loss", "margin_loss", "q")


@dataclass(frozen=True, kw_only=True)
class DqnSettings:
    """Hyper-parameters."""

    batch: int = 128
    """Rows in a gradient step."""
    double: bool = True
    """Choose the next action by the network, and value it by the target network."""
    tau: float = 0.005
    """Share by which the target network moves towards the network after every gradient step; 0 where `sync` is called instead."""
    huber: float = 1.0
    """Errors up to this count squared, larger ones linearly."""
    max_grad_norm: float = 10.0
    """Norm at which gradients are clipped."""
    margin: float = 0.0
    """Margin by which the Q of a demonstrated action should exceed all others."""
    margin_weight: float = 0.0
    """Weight of the large-margin loss."""


class Dqn(Generic[Network]):
    """Chooses actions and learns from a memory. Invariant: `state_dict()`, the settings and the input determine all that follows.

    Rows of the memory are those of `NStepReturns`.
    """

    def __init__(
        self,
        network: Network,
        learned: Iterable[nn.Parameter],
        memory: PrioritizedReplay,
        settings: DqnSettings,
        *,
        rate: float,
    ) -> None:
        """`learned` are the parameters that are trained, with Adam at learning rate `rate`; the others stay as they are."""
        self.network = network
        self.memory = memory
        self.settings = settings
        self._learned = list(learned)
        self._target = copy.deepcopy(network)
        self._optimizer = torch.optim.Adam(self._learned, rate, fused=True)

    def act(
        self, seen: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_], epsilon: float, rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Return the best action of each environment, or with probability epsilon a random possible one."""
        with torch.inference_mode():
            best = self.network.q_values(torch.from_numpy(seen), torch.from_numpy(masks)).argmax(1).numpy()
        if epsilon <= 0:
            return best
        drawn = rng.random(masks.shape)
        random_one = np.where(masks, drawn, -1.0).argmax(1)
        return np.where(rng.random(len(best)) < epsilon, random_one, best)

    def learn(self) -> dict[str, float]:
        """Make one gradient step on rows of the memory, and set their priorities. Returns the losses and the mean Q."""
        settings, sample = self.settings, self.memory.sample(self.settings.batch)
        rows = {name: torch.from_numpy(column) for name, column in sample.rows.items()}
        values = self.network.q_values(rows["seen"].float(), rows["masks"])
        taken = values.gather(1, rows["actions"].unsqueeze(1)).squeeze(1)
        errors = taken - self._targets(rows)
        each = torch.nn.functional.smooth_l1_loss(
            errors, torch.zeros_like(errors), reduction="none", beta=settings.huber
        )
        loss = (torch.from_numpy(sample.weights).float() * each).mean()
        margin_loss = self._margins(values, taken, rows).mean()
        # Only what is learned: gradients of other parameters are never cleared, and would grow into the norm.
        descend(loss + settings.margin_weight * margin_loss, self._optimizer, self._learned, settings.max_grad_norm)
        self.memory.update(sample.indices, errors.detach().abs().numpy())
        if settings.tau:
            self._move_target(settings.tau)
        losses = (float(one.detach()) for one in (loss, margin_loss, taken.mean()))
        return dict(zip(LOSSES, losses, strict=True))

    def sync(self) -> None:
        """Make the target network equal to the network."""
        self._target.load_state_dict(self.network.state_dict())

    def set_learning_rate(self, rate: float) -> None:
        """Learn at that rate from now on."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def _targets(self, rows: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad():
            following, masks = rows["next_seen"].float(), rows["next_masks"]
            values = self._target.q_values(following, masks)
            if self.settings.double:
                best = self.network.q_values(following, masks).argmax(1, keepdim=True)
                value = values.gather(1, best).squeeze(1)
            else:
                value = values.amax(1)
            return rows["returns"] + rows["gammas"] * value

    def _margins(self, values: Tensor, taken: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
        others = (values + self.settings.margin).scatter(1, rows["actions"].unsqueeze(1), taken.unsqueeze(1))
        best = others.masked_fill(~rows["masks"], IMPOSSIBLE).amax(1)
        return (best - taken).clamp(min=0.0) * rows["shown"].float()

    def _move_target(self, tau: float) -> None:
        with torch.no_grad():
            for target, fast in zip(self._target.parameters(), self.network.parameters(), strict=True):
                target.lerp_(fast, tau)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `load_state_dict` needs to continue."""
        return {
            "network": {name: tensor.clone() for name, tensor in self.network.state_dict().items()},
            "slow": {name: tensor.clone() for name, tensor in self._target.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "memory": self.memory.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Continue from the result of `state_dict`."""
        self.network.load_state_dict(state_dict["network"])
        self._target.load_state_dict(state_dict["slow"])
        self._optimizer.load_state_dict(state_dict["optimizer"])
        self.memory.load_state_dict(state_dict["memory"])
