"""The guard of a policy with learned weights: a rule decides where the agent leaves jobs waiting, or falls behind `fifo-skip`.

Two things make the rule decide. One is a state: an overdue job that fits and that the agent leaves waiting
(`policies.learned.guard`, `policies.learned.resizing_guard`). The other is a history: jobs stay for longer than they would have
under `fifo-skip` (`Standing`). Then the rule decides in the agent's place, decision after decision, until the policy has caught up.

So whatever an agent does wrong, whether it leaves GPUs idle, takes the wrong jobs first, gives jobs too few GPUs or stops them
too often, it does so until jobs have stayed `BEHIND` times as long as they would have, and `SPARED_S` each. The limits of the
history are the same inside and outside of the range of the training.
"""

from __future__ import annotations

import copy
from typing import Protocol, Self

from policies.api import Decision
from policies.learned.guard import Guard, as_guard, expected_s
from policies.learned.shadow.standing import SPARED_S, Standing
from policies.model import ClusterState


class Limits(Protocol):
    """A guard without memory, and its rule."""

    def checked(self, state: ClusterState, decision: Decision, *, is_known: bool = True) -> Decision:
        """Return the agent's decision on that state, or the rule's."""

    def ruled(self, state: ClusterState) -> Decision:
        """Return the rule's decision on that state."""


class Unlimited:
    """Limits that never act, of a policy that bounds waits itself. Its rule is that of `Guard`."""

    def checked(self, state: ClusterState, decision: Decision, *, is_known: bool = True) -> Decision:
        """Return the agent's decision."""
        del state, is_known
        return decision

    def ruled(self, state: ClusterState) -> Decision:
        """Return the rule's decision on that state."""
        return Guard().ruled(state)


class ShadowGuard:
    """A guard with memory. Invariant: the same state and decision, again and again, have the same answer."""

    def __init__(self, limits: Limits, spared_s: float = SPARED_S) -> None:
        """`spared_s`: seconds by which jobs may stay longer than under `fifo-skip`."""
        self._limits = limits
        self._standing = Standing(spared_s)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._standing = self._standing.fork()
        return twin

    def checked(self, state: ClusterState, decision: Decision, *, is_known: bool = True) -> Decision:
        """Return the agent's decision on that state, or the rule's, with `guard` as its reason.

        `is_known`: the state is one that the agent was trained for.
        """
        standing = self._standing
        expected = expected_s(state)
        standing.see(state, expected)
        if standing.is_behind:
            ruled = self._limits.ruled(state)
            if ruled.allocation != decision.allocation:
                decision = as_guard(ruled, f"{_text(standing)}: the shortest jobs start, and running jobs go on")
        else:
            decision = self._limits.checked(state, decision, is_known=is_known)
        standing.decided(state, expected, decision)
        return decision


def shadow_guard_of(limits: Limits | None, interval_s: float = 0.0) -> ShadowGuard | None:
    """Return the guard with these limits; None where it is switched off. A job may wait for `interval_s` by design."""
    return None if limits is None else ShadowGuard(limits, max(SPARED_S, interval_s))


def _text(standing: Standing) -> str:
    return f"jobs stay {standing.ratio:.2f} times as long as under fifo-skip"
