"""Settings of the search for a rule."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError
from policies.learned.sched2.state.kinds import COMPLETIONS, REWARDS
from policies.learned.sched2.state.window import FIRST, WINDOWS
from policies.learned.sched2.training.checks import above_zero, known_words


@dataclass(frozen=True, kw_only=True)
class RuleRecipe:
    """Settings; all are chosen here."""

    gaps_s: tuple[float, ...] = (129.0,)
    """Mean seconds between two submits in the training workloads, which are used in turn."""
    window: str = FIRST
    """The J jobs of the queue that can be chosen: first or widest."""
    candidates: int = 10
    """J."""
    reward: str = COMPLETIONS
    """The objective: effectiveness, or completions (average JCT)."""
    envs: int = 16
    """Number of environments that play at once."""
    rounds: int = 60
    """Rounds of search."""
    rules: int = 32
    """Rules that are compared in a round."""
    traces: int = 16
    """Traces that they are compared on."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        above_zero(self, "envs", "rounds", "traces", "candidates")
        known_words(self, {"window": WINDOWS, "reward": REWARDS})
        if self.rules < 3:
            raise TrainingError(f"rules is {self.rules}; give at least 3, of which one can be better than the others")
        if not self.gaps_s or min(self.gaps_s) <= 0:
            raise TrainingError(f"gaps_s is {self.gaps_s}; give seconds, more than 0")
