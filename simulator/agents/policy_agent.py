"""A policy as an agent: it decides on the simulated state, and the environment's mapping unrolls the decision into actions."""

from __future__ import annotations

from typing import Any

import gymnasium

from policies.api import Forkable, Policy
from policies.learned.training.agents import Mask
from simulator.envs.decisions import DecisionMapping, mapping_of
from simulator.errors import DecisionError


class PolicyAgent:
    """An `Agent` that any `Policy` drives.

    Invariant: the policy decides once at each instant at which the environment asks, and its actions carry out that decision.
    A policy that remembers earlier states (`Forkable`) begins every episode as it was given.
    """

    def __init__(self, policy: Policy, *, exact: bool = False) -> None:
        """With `exact`, a decision that the environment's actions cannot express is a DecisionError; else the nearest action is
        taken, and counted in `deviations`."""
        self._given = policy
        self._exact = exact
        self._policy: Policy
        self._mapping: DecisionMapping
        self._instant: int | None = None
        self.deviations = 0

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Begin an episode. Raises SettingError for an environment without a mapping."""
        self._mapping = mapping_of(env)
        remembers: object = self._given
        self._policy = remembers.fork() if isinstance(remembers, Forkable) else self._given
        self._instant = None
        self.deviations = 0

    def act(self, observation: Any, mask: Mask | None) -> int:  # noqa: ARG002 - the protocol
        """Return the next action towards the policy's decision. Raises DecisionError."""
        now = self._mapping.instant()
        if now != self._instant:
            self._instant = now
            self._mapping.begin(self._policy.decide(self._mapping.state()))
        chosen = self._mapping.next()
        if chosen.ends_decision:
            self._instant = None
        if chosen.deviation:
            if self._exact:
                raise DecisionError(
                    f"the decision of {self._policy.spec.name} cannot be expressed in the environment's actions: {chosen.deviation}"
                )
            self.deviations += 1
        return chosen.action
