"""SCHED2: a trained Q-network chooses which of ten waiting jobs starts next, or that none does (`deciding`).

Source: SCHED2 (Luan et al., GLOBECOM 2019), section III. In service the agent always takes the action with the highest Q.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.api import PolicySpec
from policies.errors import EncoderError, WeightsError
from policies.learned.sched2.deciding import NEEDS, AgentAction, AgentPolicy
from policies.learned.sched2.encoder import NAME, AgentView, Encoder, Encoding, encoding_of
from policies.learned.weights import weights

if TYPE_CHECKING:
    from torch import Tensor

    from policies.learned.sched2.networks import Sched2Network

SYSTEM = "sched2"
SOURCE = "SCHED2: Scheduling Deep Learning Training via Deep Reinforcement Learning (Luan et al., GLOBECOM 2019)"


class QAgent:
    """Network and encoder. Invariant: equal weights and states give equal actions."""

    def __init__(self, encoding: Encoding, network: Sched2Network) -> None:
        self.encoder = Encoder(encoding)
        self._network = network.eval()

    @classmethod
    def load(cls, folder: str, window: str) -> QAgent:
        """Load weights and card from the folder of a policy training; without one, those that come with Headway. `window`
        replaces the window of training. Raises WeightsError, and EncoderError for an unknown window."""
        from policies.learned.sched2.networks import network_of

        place, name = weights.located(folder, SYSTEM, SYSTEM)
        _, card = weights.load(place, name, system=SYSTEM, encoder=NAME)
        try:
            encoding = encoding_of(card.recipe)
            network = network_of(card.recipe, encoding.columns)
        except (KeyError, ValueError, TypeError, RuntimeError, EncoderError) as error:
            raise WeightsError(
                f"{place}: {name}.json: its recipe does not describe a network ({error!r}); train again"
            ) from error
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
            values = self._network(torch.from_numpy(view.array()[None]), torch.from_numpy(mask[None]))[0].numpy()
        if not np.isfinite(values[mask]).all():
            return AgentAction(int(possible[-1] if possible[-1] == 0 else possible[possible > 0][0]), is_lost=True)
        return AgentAction(int(values.argmax()))


class Sched2(AgentPolicy):
    """Chooses the next of ten waiting jobs, or none, by a trained Q-network; places it by the packing rule."""

    spec = PolicySpec(name="sched2", source=SOURCE, needs=NEEDS)

    def __init__(self, weights: str | QAgent = "", window: str = "") -> None:
        """`weights` is the folder of a policy training; without one, the weights that come with Headway. `window=widest` shows the
        agent jobs of the whole queue; an agent in place of a folder has its own window. Raises WeightsError, EncoderError."""
        self._agent = weights if isinstance(weights, QAgent) else QAgent.load(weights, window)
