"""DL2 on a cluster: the trained agent divides the GPUs among elastic jobs, slot by slot.

Source: DL2 (Peng et al., TPDS 2021), sections 4 and 7. In every slot the agent gives one worker after the other, as in its
environment, to at most J jobs at once by arrival; placements follow by best fit. Jobs are resized by a preemption, so a job keeps
its size for a slot at least. Jobs of fixed size take part with that size.

`dl2` serves an agent of the paper's form, `dl2-ppo` one of Headway's form, with the same class. The weights of `dl2` that come with
Headway, `dl2-all-reduce`, are those of the supervised phase alone: they imitate DRF.

With the option `learn`, the agent of `dl2` goes on learning while a server serves it, from the cluster's rewards (section 4.3 of
the paper) and from replays of its history (`policies.learned.dl2.learning`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from policies.api import Decision, LearningStatus, Outcome, PolicySpec
from policies.learned.dl2.division import AgentShares, Step
from policies.learned.dl2.learning.feedback.network_copy import FEEDBACK_UPDATES
from policies.learned.dl2.learning.learner import ContinuedLearning
from policies.learned.dl2.learning.service import ServiceFolder, Weights
from policies.learned.dl2.learning.settings import LearnSettings
from policies.learned.dl2.network import DL2Network
from policies.learned.dl2.serving import Served
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.system import NAME, PPO_NAME, trained_network
from policies.learned.dl2.teachers import TEACHERS
from policies.learned.resizing_guard import resizing_guard_of
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.shadow.guarded import Guarded
from policies.learned.training.agents import Logits
from policies.learned.weights.card import ModelCard
from policies.learned.weights.trained_range import TrainedRange
from policies.model import ClusterState
from policies.options import layout_named, number
from policies.ordering.resizing import Resizer
from policies.placement.rules import placement_rule

ALL_REDUCE = "dl2-all-reduce"
"""The weights of `dl2` that come with Headway, for jobs without parameter servers."""
PPO_SOURCE = "Headway; DL2 (Peng et al., TPDS 2021) with PPO, and a value for each job"
SOURCE = "DL2: A Deep Learning-Driven Scheduler for Deep Learning Clusters (Peng et al., TPDS 2021)"
STARTED = "DL2 (Peng et al., TPDS 2021), with the policy network that the training began with; trained by Headway"
SUPERVISED = "the supervised phase alone of DL2 (Peng et al., TPDS 2021), which imitates {teacher}; trained by Headway"


class SlotPolicy(Guarded):
    """The base of the policies of DL2's two systems. Invariant: a decision uses one set of weights from its begin to its end."""

    def __init__(self, name: str, source: str, round_s: object, layout: object, guard: object) -> None:
        """`round_s` is the length of a slot. The weights are given by `_serve`, before the first decision. Raises ValueError."""
        self._served: tuple[Logits, StateColumns, TrainedRange]
        self._slot_s = number("round_s", round_s, unit="seconds")
        self._guard = shadow_guard_of(resizing_guard_of(guard, self._slot_s))
        self._resizer = Resizer(placement_rule(layout_named(layout)), self._slot_s, "the agent gave it so many GPUs")
        self.spec = PolicySpec(name=name, source=source, preempts=True, resizes=True, round_s=self._slot_s)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = super().fork()
        twin._resizer = copy.copy(self._resizer)
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Give tasks to jobs until the agent stops, then place the jobs."""
        return self._decide(state)[0]

    def _decide(self, state: ClusterState) -> tuple[Decision, tuple[Step, ...]]:
        """Return the decision, and the agent's actions; none if a rule has decided in its place."""
        network, columns, trained = self._served
        shares = AgentShares(network, columns, state, self._slot_s)
        decision = self._guarded(state, self._resizer.decide(state, shares), trained)
        return decision, () if decision.guard else shares.steps

    def _serve(self, network: DL2Network, columns: StateColumns, card: ModelCard) -> None:
        """Decide with these weights from the next decision on. One assignment, so that no decision sees two sets."""
        self._served = Served(network, columns), columns, card.trained_range


class Dl2(SlotPolicy):
    """Divides the GPUs among elastic jobs by a trained network, in slots; for all-reduce jobs. By default it imitates DRF."""

    def __init__(
        self,
        weights: str = "",
        round_s: float = 1200.0,
        layout: str = "consolidated",
        learn: str = "",
        learn_every_s: float = 86400.0,
        learn_jobs: int = 5000,
        learn_days: float = 60.0,
        learn_rounds: int = 6,
        learn_longest_s: float = 7200.0,
        learn_memory_mib: int = 2048,
        guard: bool = True,
    ) -> None:
        """`weights` is the folder of a policy training; without one, the weights that come with Headway.

        `round_s` is the length of a slot (20 minutes). `learn` is a folder for continued learning, and the options after it are
        the fields of `LearnSettings`; empty: the agent does not learn. With `guard=false` the agent decides alone. Raises
        WeightsError, ValueError.
        """
        super().__init__(NAME, "", round_s, layout, guard)
        settings = LearnSettings.of_options(
            learn, learn_every_s, learn_jobs, learn_days, learn_rounds, learn_longest_s, learn_memory_mib
        )
        service = ServiceFolder(None if settings is None else settings.folder, str(weights), ALL_REDUCE)
        found = service.load()
        self._take(found)
        self._learning = (
            None if settings is None else ContinuedLearning(settings, service, found, self._take, slot_s=self._slot_s)
        )

    def fork(self) -> Self:
        """Return an independent copy, which does not learn: only the original sees the cluster."""
        twin = super().fork()
        twin._learning = None
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Decide on the state, and let the learning see it."""
        decision, steps = self._decide(state)
        if self._learning is not None:
            self._learning.see(state, steps)
        return decision

    def learn(self, outcome: Outcome) -> None:
        """Record how a job ended; without the option `learn`, discard it."""
        if self._learning is not None:
            self._learning.learn(outcome)

    def begin(self) -> None:
        """Begin to learn in the background, if that is switched on."""
        if self._learning is not None:
            self._learning.begin()

    def end(self) -> None:
        """End the learning in the background."""
        if self._learning is not None:
            self._learning.end()

    def learning(self) -> LearningStatus | None:
        """Return the state of its learning; None: it is switched off."""
        return None if self._learning is None else self._learning.status()

    def _take(self, weights: Weights) -> None:
        self.spec = replace(self.spec, source=source_of(weights.card))
        self._serve(weights.network, weights.columns, weights.card)


class Dl2Ppo(SlotPolicy):
    """Divides the GPUs among elastic jobs as `dl2` does, by the network that PPO trained; for all-reduce jobs."""

    def __init__(
        self, weights: str = "", round_s: float = 1200.0, layout: str = "consolidated", guard: bool = True
    ) -> None:
        """The options are those of `dl2`; `weights` are of a training of `dl2-ppo`. Raises WeightsError, ValueError."""
        super().__init__(PPO_NAME, PPO_SOURCE, round_s, layout, guard)
        self._serve(*trained_network(str(weights), PPO_NAME, PPO_NAME))


def source_of(card: ModelCard) -> str:
    """Return the source of `dl2` with these weights: the paper only if reinforcement learning changed their policy network.

    In the first `critic_rounds` of a training with a value baseline, only the value network learns. The round of the weights
    counts, not the length of the training; cards of earlier versions have only the planned number of rounds. Gradient steps from a
    cluster's rewards are reinforcement learning too. A card does not say how the policy network was made with which a training
    began.
    """
    if _number(card.recipe, FEEDBACK_UPDATES) > 0:
        return SOURCE
    alone = _number(card.recipe, "critic_rounds") if card.recipe.get("value_baseline", True) else 0.0
    if (_number(card.results, "round") if "round" in card.results else _number(card.recipe, "rounds")) > alone:
        return SOURCE
    if card.recipe.get("start"):
        return STARTED
    teacher = str(card.recipe.get("teacher", "its teacher"))
    return SUPERVISED.format(teacher=teacher.upper() if teacher in TEACHERS else teacher)


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0
