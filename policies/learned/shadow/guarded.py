"""The base of the policies that have a guard."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Self

from policies.api import Decision
from policies.learned.shadow.guard import ShadowGuard
from policies.learned.weights.trained_range import TrainedRange, noted
from policies.model import ClusterState


class Guarded:
    """A policy whose guard remembers how its jobs have fared. Invariant: copies share nothing that decisions change."""

    _guard: ShadowGuard | None

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._guard = None if self._guard is None else self._guard.fork()
        return twin

    def _guarded(self, state: ClusterState, decision: Decision, trained: TrainedRange) -> Decision:
        """Return the agent's decision or the guard's, with a remark where the state is outside of the range of the training."""
        noticed = noted(trained, state, decision)
        if self._guard is None:
            return noticed
        is_known = bool(trained) and not noticed.outside
        return replace(self._guard.checked(state, noticed, is_known=is_known), outside=noticed.outside)
