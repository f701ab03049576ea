"""SCHED2: the trained agent chooses which of ten waiting jobs starts next, or that none does; packing chooses the nodes.

Source: SCHED2 (Luan et al., GLOBECOM 2019), section III. In service the agent always takes the action with the highest Q. Three
points are chosen here. The agent may not wait while nothing runs, as in the environment. Jobs that it sees and does not start wait,
even if GPUs are free: holding GPUs back is what it has learned. And where the network's answer is not finite, as for inputs far
beyond those of training, the first job that fits starts, and its reason says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from policies.api import Decision, PolicySpec
from policies.errors import EncoderError, WeightsError
from policies.learned.sched2.encoder import NAME, AgentView, Encoder, Encoding
from policies.learned.weights import weights
from policies.learned.weights.card import Setting, settings_of
from policies.model import ClusterState, Placement
from policies.placement.best_fit import free_gpus
from policies.selection import held_placements

if TYPE_CHECKING:
    from torch import Tensor

    from policies.learned.sched2.network import QNetwork
    from policies.learned.sched2.training.recipe import Recipe

SYSTEM = "sched2"
SOURCE = "SCHED2: Scheduling Deep Learning Training via Deep Reinforcement Learning (Luan et al., GLOBECOM 2019)"
_NEEDS = frozenset({"duration_estimate", "profile"})
DEFERRED = "deferred by the agent: it would rather keep {} GPUs free for now"
_LOST = "the network's answer is not finite; first come, first served"


@dataclass(frozen=True, slots=True)
class AgentAction:
    """An action that the agent chooses."""

    action: int
    is_lost: bool = False
    """The network's answer was not finite."""


class Sched2Agent:
    """Network and encoder. Invariant: equal weights and states give equal actions."""

    def __init__(self, encoding: Encoding, network: QNetwork) -> None:
        self.encoder = Encoder(encoding)
        self._network = network.eval()

    @classmethod
    def load(cls, folder: str, window: str) -> Sched2Agent:
        """Load weights and card from a training's folder; without one, those that come with Headway. `window` replaces the window
        of training. Raises WeightsError, and EncoderError for an unknown window."""
        from policies.learned.sched2.network import QNetwork

        place, name = weights.located(folder, SYSTEM, SYSTEM)
        _, card = weights.load(place, name, system=SYSTEM, encoder=NAME)
        try:
            encoding = encoding_of(card.recipe)
            network = QNetwork(encoding.layout, int(card.recipe["hidden"]), int(card.recipe["server"]))
        except (KeyError, ValueError, TypeError, RuntimeError, EncoderError) as error:
            raise WeightsError(f"{place}: {name}.json: its recipe makes no network ({error!r}); train again") from error
        arrays, _ = weights.load(place, name, system=SYSTEM, encoder=NAME, network=network.state_dict())
        weights.fill(network, arrays)
        return cls(replace(encoding, window=window) if window else encoding, network)

    def q_values(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return Q of all actions for a batch of states."""
        values: Tensor = self._network(states, masks)
        return values

    def choose(self, view: AgentView) -> AgentAction:
        """Return the possible action with the highest Q."""
        import torch

        mask = view.mask()
        possible = np.flatnonzero(mask)
        if len(possible) == 1:
            return AgentAction(int(possible[0]))
        with torch.inference_mode():
            worth = self._network(torch.from_numpy(view.array()[None]), torch.from_numpy(mask[None]))[0].numpy()
        if not np.isfinite(worth[mask]).all():
            return AgentAction(int(possible[-1] if possible[-1] == 0 else possible[possible > 0][0]), is_lost=True)
        return AgentAction(int(worth.argmax()))


class Sched2:
    """A trained agent decides which of ten waiting jobs starts next, or that none does; packed on what is free."""

    spec = PolicySpec(name="sched2", source=SOURCE, needs=_NEEDS)

    def __init__(self, weights: str = "", window: str = "") -> None:
        """`weights` is the folder of a training; without one, the weights that come with Headway. `window=widest` shows the agent
        jobs of the whole queue. Raises WeightsError, EncoderError."""
        self._agent = Sched2Agent.load(weights, window)

    @classmethod
    def of(cls, agent: Sched2Agent) -> Self:
        """Return a policy with that agent."""
        policy = object.__new__(cls)
        policy._agent = agent
        return policy

    def decide(self, state: ClusterState) -> Decision:
        """Keep running jobs; the agent starts jobs one by one until it waits. Raises EncoderError for unsupported clusters."""
        allocation = held_placements(state, state.running)
        reasons: dict[int, str] = {}
        waiting = state.pending
        self._agent.encoder.check(state)
        if not len(waiting) or state.jobs.num_gpus[waiting].min() > free_gpus(state, state.running):
            return Decision(allocation, reasons, tuple(waiting.tolist()))
        view = self._agent.encoder.observe(state)
        while len(view.candidates):
            chosen = self._agent.choose(view)
            started = view.start(chosen.action)
            if started is None:
                break
            row, placement = started
            allocation[row] = placement
            reasons[row] = _LOST if chosen.is_lost else _why(state, placement)
        possible = view.mask()[1:]
        if possible.any():
            free = view.capacity.total_free()
            reasons.update(
                (row, DEFERRED.format(free)) for row, fits in zip(view.candidates, possible, strict=False) if fits
            )
        return Decision(allocation, reasons, tuple(waiting.tolist()))


def settings(encoding: Encoding, recipe: Recipe) -> dict[str, Setting]:
    """Return the card's record of both, from which `encoding_of` and the network can be made again."""
    return {**settings_of(recipe), **settings_of(asdict(encoding))}


def encoding_of(kept: Mapping[str, Setting]) -> Encoding:
    """Return the encoding in a card's recipe. Raises KeyError, EncoderError."""
    return Encoding(**{each.name: kept[each.name] for each in fields(Encoding)})  # type: ignore[arg-type] # it checks itself


def _why(state: ClusterState, placement: Placement) -> str:
    names = [state.nodes.names[node] for node in placement.nodes]
    where = names[0] if len(names) == 1 else f"{len(names)} nodes, {names[0]} to {names[-1]}"
    return f"the agent's choice: {placement.num_gpus} GPUs on {where}"
