"""Untrained agents, and small environments for the tests of training."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.network import ActorCritic
from policies.learned.contention_rl.policy import ContentionAgent
from policies.learned.contention_rl.recipe import Recipe
from policies.learned.contention_rl.system import SYSTEM, card_details
from policies.learned.training.systems import SimulationBackend
from policies.learned.weights.card import ModelCard, draft
from simulator.papers.contention_rl.env import ContentionEnv


def network_of(encoding: Encoding, seed: int = 0, spread: float = 1.0) -> ActorCritic:
    """Return a network with random weights; `spread` scales its logits."""
    torch.manual_seed(seed)
    network = ActorCritic(encoding, hidden=16, pair=8)
    with torch.no_grad():
        for layer in (network.pair, network.wait):
            layer.weight.mul_(100 * spread)
    return network


def agent_of(encoding: Encoding, seed: int = 0, wait: float | None = None) -> ContentionAgent:
    """With random weights; `wait` is added to the logit of waiting."""
    network = network_of(encoding, seed)
    if wait is not None:
        torch.nn.init.constant_(network.wait.bias, wait)
    return ContentionAgent(encoding, network)


def environments(count: int, **options: Any) -> SyncVectorEnv:
    """Environments of one process, in the form for training."""
    return SyncVectorEnv([lambda: ContentionEnv(**options)] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def card_of(recipe: Recipe, backend: SimulationBackend) -> ModelCard:
    """Return the card of a training of contention-rl with that recipe."""
    details = card_details(recipe, backend)
    return draft(
        system=SYSTEM.name,
        recipe=details.settings or {},
        seed=3,
        encoder=details.encoder,
        shapes=details.shapes,
        data=backend.data,
        data_sha256=backend.data_sha256,
    )
