"""sched2-rule: SCHED2's decisions by a rule that a search has found, without a network and without torch.

State, actions and placement are those of the paper's agent (`deciding`); the rule, which is not from the paper, takes the place of
its Q-network. The rule has a weight for each feature of a candidate (`state.feature_columns`). The possible job with the largest
sum of weight times feature starts; where all sums are negative, none does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from policies.api import PolicySpec
from policies.errors import EncoderError, WeightsError
from policies.learned.guard import guard_of
from policies.learned.sched2.deciding import NEEDS, AgentAction, AgentPolicy
from policies.learned.sched2.encoder import NAME, AgentView, Encoder, Encoding, Mask, encoding_of
from policies.learned.sched2.state.feature_columns import OF_JOB
from policies.learned.sched2.state.features import Features
from policies.learned.sched2.state.first_rule import first_rule
from policies.learned.sched2.state.state_columns import State
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.weights import weights as stored
from policies.learned.weights.trained_range import TrainedRange

SYSTEM = "sched2-rule"
WEIGHT = "rule"
"""Name of the array in the weights."""
SEARCHED, START = "searched", "start"
Rule = npt.NDArray[np.float64]


class RuleAgent:
    """Chooses by a rule."""

    def __init__(self, encoding: Encoding, rule: Rule, trained: TrainedRange | None = None) -> None:
        """`rule` has OF_JOB numbers; `trained` is the range of its search, if that is known."""
        self.trained: TrainedRange = trained or {}
        self.encoder = Encoder(encoding)
        self._rule = rule
        self._features = Features(encoding.columns)

    @classmethod
    def load(cls, folder: str, window: str, kind: str = SEARCHED) -> Self:
        """Load the rule from the folder of a policy training; without one, the rule that comes with Headway. `window` replaces
        the window of training; `kind` START takes the rule from which the search begins. Raises WeightsError, and EncoderError
        for an unknown window."""
        place, name = stored.located(folder, SYSTEM, SYSTEM)
        arrays, card = stored.load(place, name, system=SYSTEM, encoder=NAME)
        rule = arrays.get(WEIGHT)
        if rule is None or rule.shape != (OF_JOB,):
            raise WeightsError(f"{place}: {name}.safetensors: no rule of {OF_JOB} numbers; train again")
        try:
            encoding = encoding_of(card.recipe)
        except (KeyError, TypeError, EncoderError) as error:
            raise WeightsError(f"{place}: {name}.json: its recipe has no encoding ({error!r}); train again") from error
        chosen = first_rule() if kind == START else rule.astype(np.float64)
        return cls(replace(encoding, window=window) if window else encoding, chosen, card.trained_range)

    def choose(self, view: AgentView) -> AgentAction:
        """Return the rule's action."""
        return AgentAction(self.action(view.array(), view.mask()))

    def action(self, state: State, mask: Mask) -> int:
        """Return the rule's action for a state of the environment."""
        return self._features.action(self._rule, state, mask.view(np.uint8))


class Sched2Rule(AgentPolicy):
    """Chooses the next of ten waiting jobs, or none, by a rule that a search has found; places it by the packing rule."""

    spec = PolicySpec(
        name=SYSTEM, source="Headway; state, actions and placement of SCHED2 (Luan et al., GLOBECOM 2019)", needs=NEEDS
    )

    def __init__(
        self, weights: str | RuleAgent = "", window: str = "", rule: str = SEARCHED, guard: bool = True
    ) -> None:
        """`weights` is the folder of a policy training; without one, the rule that comes with Headway. `window=widest` shows it
        jobs of the whole queue. `rule=start` is the rule that the search began with. An agent in place of a folder has a rule and a
        window of its own, and decides alone, as does every agent with `guard=false`. Raises WeightsError, EncoderError."""
        if rule not in (SEARCHED, START):
            raise ValueError(f"rule is {rule!r}; give {SEARCHED} or {START}")
        self._agent = weights if isinstance(weights, RuleAgent) else RuleAgent.load(weights, window, rule)
        self._guard = shadow_guard_of(guard_of(guard, alone=not isinstance(weights, str)))
