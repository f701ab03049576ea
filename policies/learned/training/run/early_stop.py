"""Early stopping, when a validation figure no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal, TypeAlias

from policies.errors import TrainingError

Better: TypeAlias = Literal["lower", "higher"]


class EarlyStop:
    """Says when to stop. Invariant: `best` is the best figure so far; of those after it, which were not better, `since` counted."""

    def __init__(self, better: Better, patience: int | None) -> None:
        """Stop after `patience` figures in a row that were not better than the best; None: never."""
        self.better = better
        self.patience = patience
        self.best: float | None = None
        self.since = 0
        self.counting = True
        """False while figures may become the best but take no patience: an agent still has to act more by what it has learned."""

    @property
    def is_over(self) -> bool:
        """True if training should stop."""
        return self.patience is not None and self.since >= self.patience

    def offer(self, figure: float, min_gain: float = 0.0) -> bool:
        """Record a figure; return whether it is better than the best so far by more than `min_gain` of that (0.05 = 5 %).

        Raises TrainingError for NaN and infinity.
        """
        if not isfinite(figure):
            raise TrainingError(f"the validation figure is {figure}: the training diverged; lower its learning rate")
        if self.best is None or self._gain(figure, self.best) > min_gain * abs(self.best):
            self.best, self.since = figure, 0
            return True
        self.since += self.counting
        return False

    def miss(self) -> None:
        """Record that there was no figure, which counts as one that was not better."""
        self.since += self.best is not None

    def _gain(self, figure: float, best: float) -> float:
        return best - figure if self.better == "lower" else figure - best

    def state_dict(self) -> dict[str, Any]:
        """Return the best figure and the count since."""
        return {"best": self.best, "since": self.since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        self.best, self.since = state["best"], state["since"]
