"""Imitation: supervised learning of a teacher's actions.

Three losses, as DL2's ablation compares them (section 6.4 of the paper): cross-entropy, and the mean square or mean absolute
difference between the policy's probabilities and 1 for the action shown, 0 for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from policies.learned.algorithms.distribution import Categorical, Distribution, DistributionOf
from policies.learned.algorithms.networks import ActorCritic

CROSS_ENTROPY, MEAN_SQUARE, ABSOLUTE = "cross-entropy", "mean-square", "absolute"


class Imitation:
    """Teaches a network the actions of demonstrations. Of the network only the logits are used."""

    def __init__(
        self,
        network: ActorCritic,
        optimizer: torch.optim.Optimizer,
        loss: str = CROSS_ENTROPY,
        distribution: DistributionOf = Categorical,
    ) -> None:
        """Raises ValueError for an unknown loss."""
        if loss not in LOSSES:
            raise ValueError(f"loss is {loss!r}; give {', '.join(LOSSES)}")
        self.network = network
        self._optimizer = optimizer
        self._loss = LOSSES[loss]
        self._distribution = distribution

    def update(self, rows: Mapping[str, Tensor]) -> dict[str, float]:
        """Make one gradient step on rows of `seen`, `actions`, and `masks` where actions can be impossible.

        Returns the loss, and the share of rows whose likeliest action is the one shown.
        """
        logits, _ = self.network(rows["seen"])
        distribution = self._distribution(logits, rows.get("masks"))
        loss = self._loss(distribution, rows["actions"])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        with torch.no_grad():
            same = (distribution.mode() == rows["actions"]).reshape(len(logits), -1).all(1)
        return {"loss": float(loss.detach()), "accuracy": float(same.float().mean())}


def _cross_entropy(distribution: Distribution, actions: Tensor) -> Tensor:
    return -distribution.log_prob(actions).mean()


def _mean_square(distribution: Distribution, actions: Tensor) -> Tensor:
    return _differences(distribution, actions).square().sum(-1).mean()


def _absolute(distribution: Distribution, actions: Tensor) -> Tensor:
    return _differences(distribution, actions).abs().sum(-1).mean()


def _differences(distribution: Distribution, actions: Tensor) -> Tensor:
    shown = torch.nn.functional.one_hot(actions, distribution.probs.shape[-1])
    return distribution.probs - shown


LOSSES: Mapping[str, Callable[[Distribution, Tensor], Tensor]] = {
    CROSS_ENTROPY: _cross_entropy,
    MEAN_SQUARE: _mean_square,
    ABSOLUTE: _absolute,
}
