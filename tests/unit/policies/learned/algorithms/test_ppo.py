"""PPO's minibatches: a single row has no spread of returns, and must not turn the weights into NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.learned.algorithms.networks import MlpActorCritic
from policies.learned.algorithms.ppo import Ppo, PpoSettings, minibatches
from policies.learned.algorithms.rollout import Rollout


def rollout_of(learner: Ppo, steps: int) -> Rollout:
    draw = np.random.default_rng(0)
    seen = draw.random((steps, 1, 3)).astype(np.float32)
    chosen = [learner.act(seen[step], None) for step in range(steps)]
    never = np.zeros((steps, 1), dtype=np.bool_)
    return Rollout(
        observations=seen,
        masks=None,
        actions=np.stack([each["actions"] for each in chosen]),
        rewards=draw.random((steps, 1)),
        terminated=never,
        truncated=never,
        elapsed=None,
        extras={name: np.stack([each[name] for each in chosen]) for name in ("log_probs", "values")},
        last_observations=seen[0],
        last_masks=None,
        final_observations=seen[:0, 0],
        final_masks=None,
        episodes=[],
    )


@pytest.mark.parametrize(("steps", "minibatch"), [(5, 4), (1, 4), (3, 1)])
def test_a_minibatch_of_one_row_leaves_weights_that_are_numbers(steps: int, minibatch: int) -> None:
    torch.manual_seed(0)
    network = MlpActorCritic(3, 2, (8,))
    settings = PpoSettings(minibatch=minibatch, epochs=2)
    learner = Ppo(network, torch.optim.Adam(network.parameters(), 1e-3), settings, torch.Generator())
    losses = learner.update(rollout_of(learner, steps))
    assert np.isfinite(list(losses.values())).all()
    assert all(bool(torch.isfinite(weights).all()) for weights in network.parameters())


@pytest.mark.parametrize(("rows", "size", "lengths"), [(8, 4, [4, 4]), (9, 4, [4, 5]), (10, 4, [4, 4, 2]), (1, 4, [1])])
def test_a_single_last_row_joins_the_minibatch_before(rows: int, size: int, lengths: list[int]) -> None:
    parts = minibatches(torch.arange(rows), size)
    assert [len(part) for part in parts] == lengths
    assert torch.cat(parts).tolist() == list(range(rows))
