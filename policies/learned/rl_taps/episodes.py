"""Episodes of several sequences side by side, for REINFORCE, and the order of the sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch

from policies.learned.algorithms.distribution import MultiCategorical
from policies.learned.algorithms.reinforce import Episodes
from policies.learned.rl_taps.network import RlTapsNetwork
from policies.learned.rl_taps.recipe import STREAMING, Recipe
from policies.learned.training.run import seeding


def play(
    envs: gymnasium.vector.VectorEnv[Any, Any, Any],
    network: RlTapsNetwork,
    seeds: Sequence[int],
    rng: np.random.Generator,
    most: int,
) -> list[Episodes]:
    """Play E episodes of the sequence of each seed with drawn actions, in E x len(seeds) environments; return them by sequence.

    No episode is longer than `most` steps.
    """
    count = envs.num_envs
    draws = torch.Generator().manual_seed(int(rng.integers(1 << 31)))
    each = count // len(seeds)
    # Any vectorized environment takes several seeds, though the base class does not say so.
    every: Any = [seed for seed in seeds for _ in range(each)]
    seen, _ = envs.reset(seed=every)
    space, actions = envs.single_observation_space, envs.action_space.shape or ()
    images = np.zeros((most, count, *(space.shape or ())), dtype=space.dtype)
    chosen = np.zeros((most, *actions), dtype=np.int64)
    rewards = np.zeros((most, count))
    played = np.zeros((most, count), dtype=np.bool_)
    goes_on = np.ones(count, dtype=np.bool_)
    for step in range(most):
        images[step], played[step] = seen, goes_on
        with torch.inference_mode():
            logits = network.logits(torch.from_numpy(seen[goes_on]))
            chosen[step, goes_on] = MultiCategorical(logits).sample(draws).numpy()
        seen, rewards[step], terminated, truncated, _ = envs.step(chosen[step])
        goes_on &= ~(terminated | truncated)
        if not goes_on.any():
            break
    steps = step + 1
    return [
        Episodes(
            observations=images[:steps, rows],
            masks=None,
            actions=chosen[:steps, rows],
            rewards=rewards[:steps, rows],
            played=played[:steps, rows],
        )
        for rows in (slice(first, first + each) for first in range(0, count, each))
    ]


def sequences_of(recipe: Recipe, seed: int, number: int) -> list[int]:
    """Return the seeds of the sequences of that round. Each epoch has all in another order, without an incomplete batch."""
    per_epoch = recipe.sequences // recipe.batch
    epoch, place = divmod(number, per_epoch)
    generation = epoch // recipe.fresh_every if recipe.data == STREAMING else 0
    seeds = seeding.seeds(recipe.sequences, seed, "sequences", generation)
    order = seeding.generator(seed, "order", epoch).permutation(recipe.sequences)
    return [seeds[at] for at in order[place * recipe.batch : (place + 1) * recipe.batch]]
