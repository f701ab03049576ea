"""RL-base and RL-Hybrid: the trained agent decides, and always takes its most likely action.

Source: contention_rl, section IV, "Benchmark policies". RL-base may leave GPUs idle to avoid contention; RL-Hybrid starts by a rule
the jobs that the agent left. Two points are chosen here. The agent may not wait while nothing runs: nothing would ever change, and
its next answer would be the same. And the rule of RL-Hybrid, which the paper calls greedy scheduling, tries jobs of few GPUs first,
as the paper's code does, and places by consolidated best fit: every job that fits (`greedy=all`), or, as that code does, one job
where the agent has started none (`greedy=one`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from policies.api import Decision, PolicySpec
from policies.errors import EncoderError, WeightsError
from policies.learned.contention_rl.encoder import NAME, AgentView, Encoder, Encoding
from policies.learned.contention_rl.preempting import too_slow
from policies.learned.guard import guard_of
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.shadow.guarded import Guarded
from policies.learned.weights import weights
from policies.learned.weights.card import Setting, settings_of
from policies.learned.weights.trained_range import TrainedRange
from policies.model import ClusterState, Placement
from policies.options import choice, number
from policies.ordering.rounds import Rounds
from policies.placement.placement_text import nodes_text
from policies.placement.rules import BEST_FIT
from policies.selection import present_placements

if TYPE_CHECKING:
    from torch import Tensor, nn

    from policies.learned.contention_rl.recipe import Recipe

SYSTEM = "contention-rl"
ALL, ONE = "all", "one"
SHIPPED = {branch: f"rl-base-{branch}" for branch in "ABDE"} | {"C": "rl-base"}
"""Names of the weights that come with Headway, for both policies, by branch of the reward's weights."""
USUAL_BRANCH = "C"
OWN, PAPER = "own", "paper"
"""Recipes of the weights that come with Headway: Headway's own, and the paper's."""
USUAL = {OWN: USUAL_BRANCH, PAPER: "B"}
"""Branch of each that is served if none is given; the paper's figures 5 to 7 show B."""
SOURCE = "Network Contention-Aware Cluster Scheduling with Reinforcement Learning (Ryu and Eo)"
_NEEDS = frozenset({"profile"})
DEFERRED = "deferred: the learned policy gives waiting a probability of {:.0%}"
BETWEEN = "waits: the policy starts jobs at the beginning of rounds of {:.0f} s"
STOPPED = "stopped: it runs at less than {:.0%} of the speed that it would have alone; it starts again later"
_USUAL = ("usual_communication", "usual_bandwidth", "usual_sensitivity")


@dataclass(frozen=True, slots=True)
class AgentAction:
    """An action that the agent chooses."""

    action: int
    share: float
    """Probability of the action."""
    waits: float
    """Probability of waiting."""


class ContentionAgent:
    """Network and encoder. Invariant: equal weights and states give equal actions."""

    def __init__(self, encoding: Encoding, network: nn.Module, trained: TrainedRange | None = None) -> None:
        """`network` maps a batch of observations to (logits of all actions, values); `trained` is the range of its training."""
        self.trained = trained or {}
        self.encoder = Encoder(encoding)
        self._network = network.eval()

    @classmethod
    def load(cls, given: str = "", branch: str = USUAL_BRANCH, preset: str = OWN) -> ContentionAgent:
        """Load weights from a training's folder, or those of that branch and preset that come with Headway. Raises WeightsError."""
        from policies.learned.contention_rl.network import NODES, network_of

        place, name = weights.located(given, SYSTEM, shipped(branch, preset))
        _, card = weights.load(place, name, system=SYSTEM, encoder=NAME)
        try:
            encoding, sizes = encoding_of(card.recipe), (int(card.recipe["hidden"]), int(card.recipe["pair"]))
            network = network_of(encoding, str(card.recipe.get("network", NODES)), *sizes)
        except (KeyError, ValueError, TypeError, RuntimeError, EncoderError) as error:
            raise WeightsError(
                f"{place}: {name}.json: its recipe does not describe a network ({error!r}); train again"
            ) from error
        arrays, _ = weights.load(place, name, system=SYSTEM, encoder=NAME, network=network.state_dict())
        weights.fill(network, arrays)
        return cls(encoding, network, card.trained_range)

    def logits(self, observations: Tensor) -> Tensor:
        """Return the logits of all actions for a batch of observations."""
        logits: Tensor = self._network(observations)[0]
        return logits

    def choose(self, view: AgentView, *, must_act: bool) -> AgentAction:
        """Return the most likely action; with `must_act` the most likely start, if there is one."""
        import torch

        from policies.learned.algorithms.distribution import masked_log_softmax

        mask = view.mask()
        if not mask[1:].any():
            return AgentAction(0, 1.0, 1.0)
        with torch.inference_mode():
            logits, _ = self._network(torch.from_numpy(view.array).unsqueeze(0))
            chances = masked_log_softmax(logits, torch.from_numpy(mask).unsqueeze(0))[0].exp().numpy()
        waits = float(chances[0])
        if must_act:
            chances[0] = -1.0
        action = int(np.argmax(np.where(mask, chances, -1.0)))
        return AgentAction(action, float(chances[action]), waits)


class RlBase(Guarded):
    """Decides by the learned policy alone."""

    spec = PolicySpec("rl-base", SOURCE, needs=_NEEDS)

    def __init__(
        self,
        weights: str | ContentionAgent = "",
        branch: str = "",
        preempt_below: float = 0.0,
        preset: str = OWN,
        guard: bool = True,
        round_s: float = 0.0,
    ) -> None:
        """`weights` is the folder of a training; without one, the weights of that `branch`, A to E, come from Headway: those of its
        own recipe (C by default), or with `preset=paper` those of the paper's (B by default). A job that runs at less than the
        share `preempt_below` of its speed alone is stopped; 0: none is. With `guard=false`, or with an agent in place of a folder,
        the agent decides alone. `round_s` is the length of the rounds at whose beginnings alone it decides, 300 s in the paper's
        code; 0: it decides whenever something happens. Raises WeightsError."""
        of = choice("preset", preset, (OWN, PAPER))
        known = choice("branch", branch or USUAL[of], tuple(sorted(SHIPPED)))
        self._agent = weights if isinstance(weights, ContentionAgent) else ContentionAgent.load(weights, known, of)
        self._below = number("preempt_below", preempt_below, unit="its speed alone")
        if self._below >= 1:
            raise ValueError(
                f"preempt_below is {preempt_below}; give a share of its speed alone, less than 1, or 0 for never"
            )
        self._round_s = number("round_s", round_s, unit="seconds")
        self._rounds = Rounds(self._round_s)
        self._guard = shadow_guard_of(
            guard_of(guard, alone=not isinstance(weights, str), has_rounds=self._round_s > 0), self._round_s
        )
        self.spec = replace(self.spec, preempts=bool(self._below), round_s=self._round_s)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = super().fork()
        twin._rounds = copy.copy(self._rounds)
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Keep running jobs, except one that runs too slowly; the agent starts jobs one by one until it waits. Between the
        beginnings of two rounds none stops and none starts. Raises EncoderError for unsupported clusters."""
        if not self._rounds.begins(state.time_s):
            waiting = tuple(state.pending.tolist())
            reasons = dict.fromkeys(waiting, BETWEEN.format(self._round_s))
            return Decision(present_placements(state, state.running), reasons, waiting)
        return self._guarded(state, self._decided(state), self._agent.trained)

    def _decided(self, state: ClusterState) -> Decision:
        stopped = too_slow(state, self._below) if self._below else None
        if stopped is None:
            return self._started(state)
        found = self._started(replace(state, jobs=state.jobs.stopped(stopped)))
        reasons = dict(found.reasons)
        if stopped not in found.allocation:
            reasons[stopped] = STOPPED.format(self._below)
        return Decision(found.allocation, reasons, tuple(row for row in found.queue if row != stopped))

    def _started(self, state: ClusterState) -> Decision:
        allocation = present_placements(state, state.running)
        reasons: dict[int, str] = {}
        view = self._agent.encoder.observe(state)
        while True:
            chosen = self._agent.choose(view, must_act=not allocation)
            started = view.start(chosen.action)
            if started is None:
                break
            row, placement = started
            allocation[row] = placement
            reasons[row] = _why(state, placement, chosen.share)
        reasons.update((candidate.row, DEFERRED.format(chosen.waits)) for candidate in view.startable)
        self._fill(view, allocation, reasons)
        return Decision(allocation, reasons, tuple(state.pending.tolist()))

    def _fill(self, view: AgentView, allocation: dict[int, Placement], reasons: dict[int, str]) -> None:
        """Start jobs that the agent did not start. RL-base starts none of them."""


class RlHybrid(RlBase):
    """Decides by the learned policy; a rule starts the other jobs if they fit."""

    spec = PolicySpec("rl-hybrid", SOURCE, needs=_NEEDS)

    def __init__(
        self,
        weights: str | ContentionAgent = "",
        branch: str = "",
        greedy: str = ALL,
        preempt_below: float = 0.0,
        preset: str = OWN,
        guard: bool = True,
        round_s: float = 0.0,
    ) -> None:
        """`greedy` says which jobs the rule starts: all that fit, or one where the agent has started none."""
        super().__init__(weights, branch, preempt_below, preset, guard, round_s)
        self._one = choice("greedy", greedy, (ALL, ONE)) == ONE

    def _fill(self, view: AgentView, allocation: dict[int, Placement], reasons: dict[int, str]) -> None:
        """Start the remaining jobs, fewest GPUs first, then first come first served, by consolidated best fit."""
        state = view.state
        waiting = state.pending.tolist()
        left = [row for row in waiting if row not in allocation]
        if self._one and len(left) < len(waiting):
            return
        left.sort(key=state.jobs.num_gpus.tolist().__getitem__)
        for rows in [[row] for row in left] if self._one else [left]:
            found = BEST_FIT.claim(view.capacity, rows)
            for row, fit in found.items():
                allocation[row] = Placement.of((node, gpus) for node, gpus, _ in fit)
                reasons[row] = f"the learned policy did not start it, the rule does; {BEST_FIT.explain(state, fit)}"
            if found:
                return


def shipped(branch: str, preset: str = OWN) -> str:
    """Return the name of the weights of that branch and preset that come with Headway."""
    return f"rl-paper-{branch}" if preset == PAPER else SHIPPED[branch]


def settings(encoding: Encoding, recipe: Recipe) -> dict[str, Setting]:
    """Return the card's record of both, from which `encoding_of` and the network can be made again."""
    kept = asdict(encoding)
    usual = dict(zip(_USUAL, kept.pop("usual"), strict=True))
    return {**settings_of(recipe), **settings_of(kept), **usual}


def encoding_of(kept: Mapping[str, Setting]) -> Encoding:
    """Return the encoding in a card's recipe. Raises KeyError, EncoderError."""
    values = {each.name: kept[each.name] for each in fields(Encoding) if each.name != "usual"}
    usual = tuple(float(kept[name]) for name in _USUAL)
    return Encoding(**values, usual=usual)  # type: ignore[arg-type] # checked by the encoding itself


def _why(state: ClusterState, placement: Placement, share: float) -> str:
    gpus, where = placement.num_gpus, nodes_text(state, placement)
    return f"chosen by the learned policy (probability {share:.0%}): {gpus} GPUs on {where}"
