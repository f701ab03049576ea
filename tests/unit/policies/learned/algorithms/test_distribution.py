"""Distributions: against torch's own, with masks, and with actions of several parts."""

from __future__ import annotations

import pytest
import torch

from policies.learned.algorithms.distribution import Categorical, MultiCategorical

LOGITS = torch.tensor([[0.5, -1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, -2.0, 0.5]])
MASKS = torch.tensor([[True, True, False, True], [True, False, True, True], [False, True, False, False]])


def test_without_masks_it_equals_the_distribution_of_torch() -> None:
    ours, theirs = Categorical(LOGITS), torch.distributions.Categorical(logits=LOGITS)
    actions = torch.tensor([2, 0, 3])
    assert torch.allclose(ours.log_prob(actions), theirs.log_prob(actions))
    assert torch.allclose(ours.entropy(), theirs.entropy())
    assert torch.allclose(ours.probs, theirs.probs)
    assert ours.mode().tolist() == [2, 0, 0]
    assert ours.has_choice.tolist() == [True, True, True]


def test_impossible_actions_are_never_drawn_and_count_nowhere() -> None:
    ours = Categorical(LOGITS, MASKS)
    drawn = torch.stack([ours.sample(torch.Generator().manual_seed(seed)) for seed in range(300)])
    assert MASKS.gather(1, drawn.T).all()
    # What is left is a distribution over the possible actions alone.
    for row, mask in enumerate(MASKS):
        alone = torch.distributions.Categorical(logits=LOGITS[row][mask])
        assert torch.allclose(ours.probs[row][mask], alone.probs)
        assert ours.entropy()[row].item() == pytest.approx(alone.entropy().item(), abs=1e-6)
    assert ours.has_choice.tolist() == [True, True, False]
    assert ours.mode()[2].item() == 1


def test_gradients_reach_possible_actions_only_and_are_finite() -> None:
    logits = LOGITS.clone().requires_grad_()
    ours = Categorical(logits, MASKS)
    (ours.log_prob(torch.tensor([0, 2, 1])) + ours.entropy()).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[~MASKS] == 0).all()


def test_several_parts_are_independent() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0)])
    ours = MultiCategorical(logits)
    theirs = torch.distributions.Independent(torch.distributions.Categorical(logits=logits), 1)
    actions = torch.tensor([[2, 0, 3], [1, 1, 0]])
    assert torch.allclose(ours.log_prob(actions), theirs.log_prob(actions))
    assert torch.allclose(ours.entropy(), theirs.entropy())
    assert ours.sample(torch.Generator().manual_seed(0)).shape == (2, 3)
    assert ours.mode().tolist() == [[2, 0, 0], [0, 0, 2]]
    assert ours.probs.shape == logits.shape


def test_parts_have_masks_of_their_own() -> None:
    logits, masks = LOGITS[None], MASKS[None]
    ours = MultiCategorical(logits, masks)
    drawn = torch.stack([ours.sample(torch.Generator().manual_seed(seed)) for seed in range(100)])
    assert MASKS.gather(1, drawn[:, 0].T).all()
    assert ours.has_choice.tolist() == [True]
    assert MultiCategorical(logits[:, 2:], masks[:, 2:]).has_choice.tolist() == [False]


def test_logits_of_another_rank() -> None:
    with pytest.raises(ValueError, match="give \\(batch, parts of an action, choices\\)"):
        MultiCategorical(LOGITS)
