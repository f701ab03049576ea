"""The environment of MARL for gymnasium: the view of one scheduler at a time (sections III, IV and VI).

One step is one inference: the scheduler places its first task on a GPU group of its partition, or forwards it. `options.agent`
says whose view it is. With None all schedulers act in turn, each until it has no task, and one policy acts for all of them; with
a number that scheduler acts, and the others by the rule `others`. When no scheduler has a task, jobs run until the next interval
that has any.

**State**: the observations that schedulers exchange (`observation`), with a row for each scheduler; `inter` is the same for all,
and `scheduler` is one-hot and shows which one acts. **Action**: 0 to M - 1 for a group, M + s for scheduler s; `action_masks()`
has the possible ones; an impossible action counts as the first possible one, and `outcome` has their number. **Reward**, with the
step that ends an interval: the sum over the acting scheduler's jobs (agent=None: over all jobs) of the share of their steps that
they trained, or of their speeds (`reward=speed`). The paper gives the share of a job to each of its decisions: `action_rewards` in
info has it, for the decisions since the last interval, in their order. **Figures**: `outcome`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.envs.space_parts import SpacePart
from simulator.errors import SettingError
from simulator.papers.marl.env_options import MarlEnvOptions, options_of
from simulator.papers.marl.episodes import JobSource, outcome
from simulator.papers.marl.observation import Cells, Observer, View
from simulator.papers.marl.rules.named import RULES
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.world import World

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]
OUTCOME = "outcome"


class MarlEnv(gymnasium.Env[View, np.int64]):
    """`gymnasium.make("headway/Marl-v0", **options)`; the options are the fields of MarlEnvOptions.

    Invariant between steps: `turn` is a scheduler that has a task, unless the episode is over.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own form

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.options: MarlEnvOptions = options_of(MarlEnvOptions, options)
        center = data_center(self.options)
        self.options.check_cluster(center)
        if self.options.agent is not None and not 0 <= self.options.agent < center.schedulers:
            raise SettingError(f"agent is {self.options.agent}; the schedulers are 0 to {center.schedulers - 1}")
        self._source = JobSource(self.options, center)
        self.world = World(self.options, center)
        self._observer = Observer(self.world)
        self.layout = self._observer.layout
        self.turn = 0
        """The scheduler that acts."""
        self._over = True
        self._decided: list[int] = []
        """Jobs of the decisions since the last interval."""
        self._invalid = 0
        self._rule: Rule = RULES[self.options.others]()
        boxes: dict[str, gymnasium.Space[Any]] = {
            name: gymnasium.spaces.Box(0.0, 1.0, shape, np.float32) for name, shape in self._shapes().items()
        }
        seen: Any = gymnasium.spaces.Dict(boxes)
        self.observation_space = seen
        self.action_space = gymnasium.spaces.Discrete(self.layout.actions)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        count, edges = self.layout.schedulers, self.layout.inter.edges
        own = {name: (count, *shape) for name, shape in self.layout.shapes.items()}
        return {**own, "inter": (edges,), "scheduler": (count,)}

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the parts of all schedulers' observations (section IV-A)."""
        means = {
            "groups": "free GPUs and cores of each GPU group, and the workers and servers of each job there",
            "jobs": "model (one-hot), number and demand of workers and of parameter servers of each job",
            "task": "1 for a parameter server, and the row of the job to be placed; 0 without a task",
            "links": "load of each link of the scheduler's own network",
            "inter": "load of each link between the schedulers",
            "scheduler": "1 for the scheduler that acts",
        }
        return tuple(SpacePart(name, name, 0.0, 1.0, "share", means[name]) for name in self._shapes())

    def actions_text(self) -> str:
        """Return the meaning of the actions."""
        return f"0 to {self.layout.groups - 1}: the GPU group for the task; then each scheduler to which it may be forwarded"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[View, dict[str, Any]]:
        """Begin an episode. Options: `trace` (a Trace, or the number of one), or `trace_seed` of the workload."""
        super().reset(seed=seed)
        self.world.begin(self._source.draw(self.np_random, options or {}))
        self._observer.begin()
        self._rule.begin(self.world, int(self.np_random.integers(1 << 31)))
        self._decided = []
        self._invalid = 0
        self._over = False
        self._to_next_turn([])
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[View, float, bool, bool, dict[str, Any]]:
        """Make one decision of the acting scheduler."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        task = self.world.head(self.turn)
        number = int(action)
        assert task is not None
        if not 0 <= number < self.layout.actions:
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        possible = self.world.possible(self.turn)
        if not possible[number]:
            number = int(possible.argmax())
            self._invalid += 1
        self.world.act(self.turn, number)
        self._decided.append(task.job)
        rewards: list[float] = []
        reward = self._to_next_turn(rewards)
        info: dict[str, Any] = {"action_rewards": rewards} if rewards else {}
        terminated = self.world.is_done
        self._over = terminated or self.world.is_late
        if self._over:
            info[OUTCOME] = {**outcome(self.world), "invalid_actions": self._invalid}
        return self._observe(), reward, terminated, self._over and not terminated, info

    def action_masks(self) -> Mask:
        """Return which actions are possible now; before an episode and after it, all."""
        found = self.world.possible(self.turn) if not self._over else np.zeros(self.layout.actions, dtype=np.bool_)
        return found if found.any() else ~found

    def advice(self) -> Scores:
        """Return what the rule `others` thinks of each action now: a finite score, the least is best; infinite: never."""
        found = self._rule.preferences(self.turn) if not self._over else np.zeros(self.layout.actions)
        return found if np.isfinite(found).any() else np.zeros(self.layout.actions)

    def _to_next_turn(self, rewards: list[float]) -> float:
        """Pass to the next decision of the agent, or to the end; add the rewards of its decisions, and return the reward."""
        world, reward = self.world, 0.0
        while not world.is_over and not self._find_turn():
            if world.queues.is_empty:
                world.advance()
                agent = self.options.agent
                reward += float(world.reward[... if agent is None else world.jobs.scheduler == agent].sum())
                rewards.extend(world.reward[self._decided].tolist())
                self._decided = []
        return reward

    def _find_turn(self) -> bool:
        """Set `turn` to a scheduler that has a task; let others act where only one is the agent."""
        world, agent, count = self.world, self.options.agent, self.layout.schedulers
        if agent is None:
            with_tasks = (
                at % count for at in range(self.turn, self.turn + count) if world.head(at % count) is not None
            )
            self.turn = next(with_tasks, self.turn)
            return world.head(self.turn) is not None
        self.turn = agent
        if world.head(agent) is not None:
            return True
        for other in range(count):
            while other != agent and world.head(other) is not None:
                world.act(other, self._rule.act(other))
        return world.head(agent) is not None

    def _observe(self) -> View:
        views = [self._observer.view(scheduler) for scheduler in range(self.layout.schedulers)]
        found: dict[str, Cells] = {name: np.stack([view[name] for view in views]) for name in self.layout.shapes}
        acting = np.zeros(self.layout.schedulers, dtype=np.float32)
        acting[self.turn] = 1.0
        return {**found, "inter": views[0]["inter"].copy(), "scheduler": acting}
