"""Terms of the losses against their formulas, written out for single rows."""

from __future__ import annotations

import math

import pytest
import torch

from policies.learned.algorithms.distribution import Categorical
from policies.learned.algorithms.losses import actor_critic_losses, clipped_surrogate, descend


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [(1.0, 2.0, 2.0), (1.5, 2.0, 2.4), (1.5, -2.0, -3.0), (0.5, 2.0, 1.0), (0.5, -2.0, -1.6)],
)
def test_a_ratio_outside_of_the_range_earns_no_more_and_still_costs(
    ratio: float, advantage: float, objective: float
) -> None:
    terms = clipped_surrogate(torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), 0.2)
    assert terms.objective.item() == pytest.approx(objective)
    assert terms.is_clipped.item() is (abs(ratio - 1) > 0.2)
    assert terms.kl.item() == pytest.approx(ratio - 1 - math.log(ratio))


def test_only_the_objective_has_a_gradient() -> None:
    log_probs = torch.zeros(3, requires_grad=True)
    terms = clipped_surrogate(log_probs, torch.zeros(3), torch.ones(3), 0.2)
    assert terms.objective.requires_grad
    assert not terms.kl.requires_grad


def test_advantages_are_constants_for_the_policy_and_values_approach_returns() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    logits = torch.zeros(2, 2, requires_grad=True)
    losses = actor_critic_losses(Categorical(logits), torch.tensor([0, 1]), values, torch.tensor([3.0, 1.0]))
    assert losses.policy.item() == pytest.approx(math.log(2) * (2.0 - 1.0) / 2)
    assert losses.value.item() == pytest.approx((4.0 + 1.0) / 2)
    assert losses.entropy.item() == pytest.approx(math.log(2))
    losses.policy.backward()  # type: ignore[no-untyped-call]
    assert values.grad is None


def test_with_a_baseline_there_is_no_loss_of_values() -> None:
    values, returns = torch.tensor([9.0]), torch.tensor([3.0])
    losses = actor_critic_losses(Categorical(torch.zeros(1, 2)), torch.tensor([0]), values, returns, returns)
    assert (losses.policy.item(), losses.value.item()) == (0.0, 0.0)


def test_a_step_is_no_longer_than_the_norm_allows() -> None:
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    descend((100.0 * weight).sum(), optimizer, [weight], 0.5)
    assert weight.norm().item() == pytest.approx(0.5, rel=1e-5)
    descend(weight.sum() * 0.0, optimizer, [weight], 0.5)
    assert weight.norm().item() == pytest.approx(0.5, rel=1e-5), "gradients of the step before are cleared"
