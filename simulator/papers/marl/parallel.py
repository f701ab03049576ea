"""The environment of MARL for PettingZoo: an agent for each scheduler, which all act at once (parallel), or in turn (AEC).

The observation of an agent is its own (`observation`), with `action_mask`; what schedulers exchange, a learning program takes
from the observations of all. In a step every scheduler that has a task decides on it. The action M + v of scheduler v, which
would forward to itself, is that of a scheduler without a task, and then the only possible one. An impossible action counts as the
first possible one. A decision that became impossible by those of schedulers with lower numbers in the same step is not carried
out; its scheduler decides again in the next step. When no scheduler has a task, jobs run until the next interval that has any.
The reward of an agent is the sum over the jobs that came to it of the share of their steps that they trained. All agents end
together.

`from simulator.papers.marl.parallel import parallel_env, aec_env`; both take the options of the world as keywords. This needs
pettingzoo: pip install 'headway-scheduler[train]'.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from simulator.errors import SettingError
from simulator.papers.marl.env import OUTCOME
from simulator.papers.marl.env_options import options_of
from simulator.papers.marl.episodes import RESET_OPTIONS, JobSource, outcome
from simulator.papers.marl.observation import Observer
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.world import World

Seen = dict[str, npt.NDArray[Any]]
NAME = "headway/Marl-v0"
MASK = "action_mask"


class MarlParallelEnv(ParallelEnv[str, Seen, int]):
    """Agents `scheduler_0`, `scheduler_1`, ...; the options are the fields of MarlOptions."""

    metadata: dict[str, Any] = {"render_modes": [], "name": NAME, "is_parallelizable": True}  # noqa: RUF012 - its own form

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.render_mode = None
        self.options: MarlOptions = options_of(MarlOptions, options)
        center = data_center(self.options)
        self._source = JobSource(self.options, center)
        self.world = World(self.options, center)
        self._observer = Observer(self.world)
        self.layout = made = self._observer.layout
        self.possible_agents = [f"scheduler_{number}" for number in range(made.schedulers)]
        self._number = {agent: number for number, agent in enumerate(self.possible_agents)}
        self.agents: list[str] = []
        shapes = {**made.shapes, "inter": (made.inter.edges,)}
        box = gymnasium.spaces.Box
        spaces: dict[str, gymnasium.Space[Any]] = {
            name: box(0.0, 1.0, each, np.float32) for name, each in shapes.items()
        }
        spaces[MASK] = box(0, 1, (made.actions,), np.int8)
        self.observation_spaces = {agent: gymnasium.spaces.Dict(spaces) for agent in self.possible_agents}
        self.action_spaces = {agent: gymnasium.spaces.Discrete(made.actions) for agent in self.possible_agents}
        self._rng: np.random.Generator | None = None

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of an agent's observations, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of an agent's actions, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Seen], dict[str, dict[str, Any]]]:
        """Begin an episode. Options: `trace` (a Trace, or the number of one), or `trace_seed` of the workload; PettingZoo's own
        test gives others, which are ignored."""
        if seed is not None or self._rng is None:
            self._rng, _ = seeding.np_random(seed)
        known = {name: value for name, value in (options or {}).items() if name in RESET_OPTIONS}
        self.world.begin(self._source.draw(self._rng, known))
        self._observer.begin()
        self.agents = self.possible_agents[:]
        return self._observe(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Seen], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Let every agent decide on its task."""
        world = self.world
        heads = {agent: world.head(self._number[agent]) for agent in self.agents}
        chosen = {agent: self._chosen(agent, int(actions[agent])) for agent in self.agents}
        for agent, task in heads.items():
            number = self._number[agent]
            if task is not None and world.head(number) == task and world.possible(number)[chosen[agent]]:
                world.act(number, chosen[agent])
        rewards = np.zeros(self.layout.schedulers)
        while world.queues.is_empty and not world.is_over:
            world.advance()
            rewards += np.bincount(world.jobs.scheduler, world.reward, minlength=len(rewards))
        agents = self.agents
        done, late = world.is_done, world.is_over and not world.is_done
        info = {OUTCOME: outcome(world)} if world.is_over else {}
        seen = self._observe()
        if world.is_over:
            self.agents = []
        return (
            seen,
            {agent: float(rewards[self._number[agent]]) for agent in agents},
            dict.fromkeys(agents, done),
            dict.fromkeys(agents, late),
            {agent: dict(info) for agent in agents},
        )

    def _chosen(self, agent: str, action: int) -> int:
        """Return the action, or the first possible one in place of an impossible one."""
        mask = self._mask(self._number[agent])
        return action if mask[action] else int(mask.argmax())

    def _mask(self, scheduler: int) -> npt.NDArray[np.int8]:
        found = self.world.possible(scheduler)
        if not found.any():
            found[self.layout.groups + scheduler] = True
        return found.astype(np.int8)

    def _observe(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for agent in self.agents:
            number = self._number[agent]
            seen = {name: cells.copy() for name, cells in self._observer.view(number).items()}
            found[agent] = {**seen, MASK: self._mask(number)}
        return found

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def parallel_env(**options: Any) -> MarlParallelEnv:
    """Return the environment in which all schedulers act at once. Raises SettingError."""
    return MarlParallelEnv(**options)


def aec_env(**options: Any) -> AECEnv[str, Seen, int]:
    """Return the environment in which the schedulers act in turn; a step of all of them is one of the parallel form."""
    return parallel_to_aec(MarlParallelEnv(**options))
