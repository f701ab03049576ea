"""Losses that several algorithms share, and the gradient step on a loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from policies.learned.algorithms.distribution import Distribution


class Surrogate(NamedTuple):
    """Terms of proximal policy optimization. Each is a tensor (B), one number for each row; only the first has a gradient."""

    objective: Tensor
    """min(ratio A, clip(ratio, 1 - c, 1 + c) A), which is to grow (Schulman et al. 2017, equation 7)."""
    kl: Tensor
    """Estimate of the divergence from the policy that chose the actions; its mean is never less than 0."""
    is_clipped: Tensor
    """Rows whose ratio is outside of the clip range."""


class ActorCriticLosses(NamedTuple):
    """Means over all rows (Mnih et al., ICML 2016)."""

    policy: Tensor
    """- log pi(a | s) (R - V(s)), with the advantage taken as constant."""
    value: Tensor
    """(V(s) - R)^2."""
    entropy: Tensor


def clipped_surrogate(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_range: float) -> Surrogate:
    """Return the terms for actions with these log-probabilities now, and when they were chosen. Shapes: (B)."""
    change = log_probs - old_log_probs
    ratio = change.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    with torch.no_grad():
        kl = ratio - 1 - change
        is_clipped = (ratio - 1).abs() > clip_range
    return Surrogate(torch.min(ratio * advantages, clipped * advantages), kl, is_clipped)


def actor_critic_losses(
    distribution: Distribution, actions: Tensor, values: Tensor, returns: Tensor, baseline: Tensor | None = None
) -> ActorCriticLosses:
    """Return the losses of these actions. Shapes of `values`, `returns` and `baseline`: (B).

    With a baseline, advantages are R less that, and the loss of values is 0.
    """
    advantages = returns - (values.detach() if baseline is None else baseline)
    policy = -(distribution.log_prob(actions) * advantages).mean()
    value = (values - returns).square().mean() if baseline is None else torch.zeros(())
    return ActorCriticLosses(policy, value, distribution.entropy().mean())


def descend(
    loss: Tensor, optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], max_grad_norm: float
) -> None:
    """Make one gradient step on the loss, with the norm of these parameters' gradients clipped."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimizer.step()
