"""The search for a rule, played by the environments: whole episodes with each rule, all on the same traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.kinds import EFFECTIVENESS
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.search import search
from policies.learned.sched2.training.training_setup import check_columns
from policies.learned.training.run.seeding import seeds


class RuleSearch:
    """Rounds of search. Invariant between rounds: the state of `search`, the recipe and the seed determine all that follows."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], columns: StateColumns, recipe: RuleRecipe, seed: int
    ) -> None:
        """The environments play rules (`call_each` of `play`). Raises TrainingError where they show other columns."""
        check_columns(envs, columns)
        self.search = search(recipe.rules, seed)
        self._envs: Any = envs
        self._recipe = recipe
        self._seed = seed

    def run(self) -> dict[str, float]:
        """Play one round of rules against each other and learn from it. Returns their costs, in the objective's unit."""
        costs = self.costs(self.search.draw(), seeds(self._recipe.traces, self._seed, "search", self.search.rounds))
        self.search.learn(costs)
        of_rule = costs.mean(axis=1)
        return {"mean_rule": float(of_rule.mean()), "best_rule": float(of_rule.min())}

    def costs(self, rules: npt.NDArray[np.float64], traces: list[int]) -> npt.NDArray[np.float64]:
        """Return the cost of an episode with each rule on each of those traces (rules, traces)."""
        count = self._envs.num_envs
        costs = np.full((len(rules), len(traces)), np.inf)
        played = self._envs.call_each("play", [(rules, traces[env::count]) for env in range(count)])
        for env, outcomes in enumerate(played):
            for place, of_rules in zip(range(env, len(traces), count), outcomes, strict=True):
                costs[:, place] = [self._cost(outcome) for outcome in of_rules]
        return costs

    def _cost(self, outcome: Mapping[str, float]) -> float:
        """Return the cost of an episode; infinite where it was cut off."""
        if outcome["finished"] < outcome["jobs"]:
            return np.inf
        return -outcome["effectiveness"] if self._recipe.reward == EFFECTIVENESS else outcome["avg_jct_s"]
