"""Federated training: several clusters learn one network, each with jobs, a replay memory and a copy of the network of its own.

Section 6.5.2 of the paper trains so by A3C (Mnih et al., "Asynchronous methods for deep reinforcement learning", ICML 2016,
algorithm S3):

    a cluster acts with its copy; at the end of each of its slots
        its gradient, at its copy's weights, is applied to the shared network
        its copy becomes equal to the shared network

Between two slots of a cluster others have changed the shared network, so its gradients are late by so much. Here the clusters are
stepped in turn in one process: what is late does not depend on the machine, and a training can be repeated.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from policies.learned.algorithms.actor_critic import ActorCriticSettings, AdvantageActorCritic
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.network import DL2Network


class Cluster:
    """One cluster of a training. Invariant: after `learned`, its copy has the weights of the shared network."""

    def __init__(
        self,
        shared: DL2Network,
        optimizer: torch.optim.Optimizer,
        settings: ActorCriticSettings,
        rng: torch.Generator,
        memory: PrioritizedReplay,
        *,
        is_alone: bool,
    ) -> None:
        """`optimizer` is that of the shared network. A cluster that is alone has no copy of it."""
        self.network = shared if is_alone else copy.deepcopy(shared)
        self.memory = memory
        self._shared = shared
        stepped: Any = optimizer if is_alone else _SharedStep(self.network, shared, optimizer)
        self.algorithm = AdvantageActorCritic(self.network, stepped, settings, rng, values=self.network.values)

    def synchronize(self) -> None:
        """Give the copy the weights of the shared network."""
        if self.network is not self._shared:
            self.network.load_state_dict(self._shared.state_dict())

    def train_actor(self, trains: bool) -> None:
        """Let gradient steps change the policy network too, or the value network alone."""
        self.network.actor.requires_grad_(trains)


class _SharedStep:
    """Takes the place of a copy's optimizer: a step applies the copy's gradient to the shared network."""

    def __init__(self, own: DL2Network, shared: DL2Network, optimizer: torch.optim.Optimizer) -> None:
        self._own, self._shared, self._optimizer = own, shared, optimizer

    def zero_grad(self) -> None:
        """Clear the copy's gradients."""
        self._own.zero_grad()

    def step(self) -> None:
        """Make the step."""
        for mine, theirs in zip(self._own.parameters(), self._shared.parameters(), strict=True):
            theirs.grad = mine.grad
        self._optimizer.step()
