"""SCHED2: a trained Q-network chooses which of ten waiting jobs starts next, or that none does (`deciding`).

Source: SCHED2 (Luan et al., GLOBECOM 2019), section III. In service the agent always takes the action with the highest Q.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.api import PolicySpec
from policies.errors import EncoderError, WeightsError
from policies.learned.guard import guard_of
from policies.learned.sched2.deciding import NEEDS, AgentAction, AgentPolicy
from policies.learned.sched2.encoder import NAME, AgentView, Encoder, Encoding, Mask, encoding_of
from policies.learned.sched2.state.kinds import FEATURES, PAPER
from policies.learned.sched2.state.state_columns import State
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.weights import weights
from policies.learned.weights.trained_range import TrainedRange

if TYPE_CHECKING:
    from torch import Tensor

    from policies.learned.sched2.networks import Sched2Network

SYSTEM = "sched2"
SHIPPED = {PAPER: SYSTEM, FEATURES: f"{SYSTEM}-features"}
"""Names of the weights that come with Headway, by the kind of network."""
SOURCE = "SCHED2: Scheduling Deep Learning Training via Deep Reinforcement Learning (Luan et al., GLOBECOM 2019)"


class QAgent:
    """Network and encoder. Invariant: equal weights and states give equal actions."""

    def __init__(self, encoding: Encoding, network: Sched2Network, trained: TrainedRange | None = None) -> None:
        """`trained` is the range of its training, if that is known."""
        self.trained: TrainedRange = trained or {}
        self.encoder = Encoder(encoding)
        self._network = network.eval()

    @classmethod
    def load(cls, folder: str, window: str, network: str = PAPER) -> QAgent:
        """Load weights and card from the folder of a policy training; without one, those of that kind of network that come with
        Headway. `window` replaces the window of training. Raises WeightsError, and EncoderError for an unknown window."""
        from policies.learned.sched2.networks import network_of

        place, name = weights.located(folder, SYSTEM, SHIPPED[network])
        _, card = weights.load(place, name, system=SYSTEM, encoder=NAME)
        try:
            encoding = encoding_of(card.recipe)
            made = network_of(card.recipe, encoding.columns)
        except (KeyError, ValueError, TypeError, RuntimeError, EncoderError) as error:
            raise WeightsError(
                f"{place}: {name}.json: its recipe does not describe a network ({error!r}); train again"
            ) from error
        arrays, _ = weights.load(place, name, system=SYSTEM, encoder=NAME, network=made.state_dict())
        weights.fill(made, arrays)
        return cls(replace(encoding, window=window) if window else encoding, made, card.trained_range)

    def action(self, state: State, mask: Mask) -> int:
        """Return the possible action with the highest Q for a state of the environment."""
        import torch

        with torch.inference_mode():
            return int(self._network(torch.from_numpy(state[None]), torch.from_numpy(mask[None]))[0].argmax())

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
            values = self._network(torch.from_numpy(view.array()[None]), torch.from_numpy(mask[None]))[0].numpy()
        if not np.isfinite(values[mask]).all():
            return AgentAction(int(possible[-1] if possible[-1] == 0 else possible[possible > 0][0]), is_lost=True)
        return AgentAction(int(values.argmax()))


class Sched2(AgentPolicy):
    """Chooses the next of ten waiting jobs, or none, by a trained Q-network; places it by the packing rule."""

    spec = PolicySpec(name="sched2", source=SOURCE, needs=NEEDS)

    def __init__(self, weights: str | QAgent = "", window: str = "", network: str = PAPER, guard: bool = True) -> None:
        """`weights` is the folder of a policy training; without one, the weights that come with Headway: those of the paper's
        network, or with `network=features` those of the one that sees features. `window=widest` shows the agent jobs of the whole
        queue. An agent in place of a folder has a network and a window of its own. Such an agent decides alone, and so does every
        agent with `guard=false`. Raises WeightsError, EncoderError."""
        if network not in SHIPPED:
            raise ValueError(f"network is {network!r}; give {' or '.join(SHIPPED)}")
        self._agent = weights if isinstance(weights, QAgent) else QAgent.load(weights, window, network)
        self._guard = shadow_guard_of(guard_of(guard, alone=not isinstance(weights, str)))
