"""Training of SCHED2: a search for a rule, then deep Q-learning in the order of the paper (section III-F).

The paper names DQN (Mnih et al. 2015), epsilon-greedy and prioritized replay (Schaul et al. 2016). Added here: double Q-learning
(van Hasselt et al. 2016), a dueling network, returns over several steps, and demonstrations with a large-margin loss (DQfD, Hester
et al. 2018), so that learning begins where a good rule is. That rule is the best that a search found among those that the network's
linear part can represent (`search`), or, without a search, one of `demonstrations`.

A *round* is an episode of every environment, begun with seeds that follow from the training's seed and the round's number; a round
of search is `rules` episodes on each of `traces` traces, which the environments play by themselves. Between two rounds all that
goes on is in `state_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from policies.errors import TrainingError
from policies.learned.sched2.network import QNetwork
from policies.learned.sched2.state.state_layout import StateLayout
from policies.learned.sched2.training.q_learning import QLearning
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.rule_search import RuleSearch


class DqnTrainer:
    """Both phases. Invariant between rounds: all that follows is decided by `state_dict()`, the recipe and the seed."""

    def __init__(
        self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], layout: StateLayout, recipe: Recipe, seed: int
    ) -> None:
        """See `RuleSearch` and `QLearning` for the environments. Raises TrainingError where they show another layout."""
        if envs.single_observation_space.shape != (layout.size,):
            raise TrainingError(
                f"the environments show {envs.single_observation_space}, where the layout has {layout.size} numbers; make both "
                "with the same cluster and candidates"
            )
        self.recipe = recipe
        self.rules = RuleSearch(envs, recipe, seed)
        self.learning = QLearning(envs, layout, recipe, seed)

    @property
    def network(self) -> QNetwork:
        """The network that is trained."""
        return self.learning.network

    @property
    def searched(self) -> int:
        """Number of rounds of search that are done."""
        return self.rules.search.rounds

    @property
    def round(self) -> int:
        """Number of rounds of Q-learning that are done."""
        return self.learning.round

    def run_search(self) -> dict[str, float]:
        """Run one round of search, and make the best rule so far the network's linear part. Returns the costs of the rules."""
        figures = self.rules.run()
        self.learning.begin_with(self.rules.search.mean)
        return figures

    def run_round(self) -> dict[str, float]:
        """Run one round of Q-learning. Returns the means of the round."""
        return self.learning.run_round()

    def state_dict(self) -> dict[str, Any]:
        """Return all from which `load_state_dict` goes on; called between rounds."""
        return {"search": self.rules.search.state_dict(), **self.learning.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Go on from such a state."""
        self.rules.search.load_state_dict(state_dict["search"])
        self.learning.load_state_dict(state_dict)
        if self.searched:
            self.learning.show(self.rules.search.mean)
