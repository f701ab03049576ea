"""stable-baselines3 as another engine: MaskablePPO of sb3-contrib with its own network, on a system's environments.

It serves as a check of the recipes: if it learns something as well, the recipe is not the cause. All hyper-parameters are
stable-baselines3's defaults except two, which are for dozens of environments instead of one. Rewards are discounted by time, as in
the recipes (`sb3_buffer`): `gamma` is the discount of one unit of the environments' time. Rounds, checkpoints, early stopping and
validation are Headway's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from sb3_contrib import MaskablePPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from policies.errors import TrainingError
from policies.learned.algorithms.rollout import durations
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.sb3_buffer import TimedRolloutBuffer
from policies.learned.training.systems import SimulationBackend, TrainableSystem

STEPS = 64
"""Steps of every environment between two updates."""
MINIBATCH = 256
UPDATES = 4
"""Updates in a round."""
_MASKS = "action_masks"


def trainer(system: TrainableSystem) -> Callable[[TrainingRun, SimulationBackend, Any], None]:
    """Return a function that trains in place of the system's own recipe."""
    gym = system.gym
    if gym is None:
        raise TrainingError(f"{system.name} does not learn from environments alone")

    def train(run: TrainingRun, backend: SimulationBackend, recipe: Any) -> None:
        envs = Environments(gym.envs(recipe, backend))
        model = model_of(envs, run.card.seed, run.device)
        network = Sb3ActorCritic(model)
        run.keep(model=Sb3State(model))
        for _ in run.rounds(getattr(recipe, system.rounds)):
            envs.begin_with(run.seeds("environments", envs.num_envs))
            learn(model, UPDATES)
            run.log(steps=model.num_timesteps, **figures_of(model))
            figures = backend.validate(gym.policy(recipe, backend, network.cpu()))
            network.to(run.device)
            run.evaluate(next(iter(figures.values())), network.state_dict(), **figures)

    return train


def model_of(envs: Environments, seed: int, device: str = "cpu") -> MaskablePPO:
    """Return an untrained agent."""
    model = MaskablePPO(
        "MlpPolicy",
        envs,
        n_steps=STEPS,
        batch_size=MINIBATCH,
        seed=seed,
        device=device,
        rollout_buffer_class=TimedRolloutBuffer,
        rollout_buffer_kwargs={"clock": envs},
    )
    # Its own would make a folder in /tmp.
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def learn(model: MaskablePPO, updates: int) -> None:
    """Learn from so many batches of new episodes, from the last `begin_with` on."""
    assert model.env is not None
    # Otherwise it would continue earlier episodes, which a resumed training does not have.
    model._last_obs = None
    model.learn(updates * STEPS * model.env.num_envs, reset_num_timesteps=False, log_interval=cast(Any, None))


def figures_of(model: MaskablePPO) -> dict[str, float]:
    """Return the figures of its last update: losses, entropy, and so on."""
    logged = model.logger.name_to_value
    return {name.rpartition("/")[2]: float(value) for name, value in logged.items() if name.startswith("train/")}


class Sb3ActorCritic(nn.Module):
    """Its network in the form observations -> (logits of all actions, values)."""

    def __init__(self, model: MaskablePPO) -> None:
        super().__init__()
        self.policy = model.policy

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and values; nothing is masked."""
        policy: Any = self.policy
        actor, critic = policy.mlp_extractor(policy.extract_features(seen))
        return policy.action_net(actor), policy.value_net(critic).squeeze(1)


class Sb3State:
    """The state that is carried from round to round."""

    def __init__(self, model: MaskablePPO) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Return network, optimizer and counters."""
        model = self._model
        return {
            "policy": {name: tensor.clone() for name, tensor in model.policy.state_dict().items()},
            "optimizer": model.policy.optimizer.state_dict(),
            "steps": model.num_timesteps,
            "updates": model._n_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue from a state that `state_dict` returned."""
        model = self._model
        model.policy.load_state_dict(state["policy"])
        model.policy.optimizer.load_state_dict(state["optimizer"])
        model.num_timesteps, model._n_updates = state["steps"], state["updates"]


class Environments(VecEnv):
    """Gymnasium's vectorized environments (with masks, SAME_STEP) with the interface of stable-baselines3."""

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._envs = envs
        self._first_seeds: list[int] = []
        """Bound: the environments."""
        self._actions: Any = None
        self.elapsed = np.ones(envs.num_envs)
        """Duration of the last step in each environment, in its own unit; 1 where it reports none."""
        self.rewards = np.zeros(envs.num_envs, dtype=np.float32)
        """Rewards of the last step."""

    def begin_with(self, seeds: Sequence[int]) -> None:
        """Use these seeds at the next reset."""
        self._first_seeds = list(seeds)

    def reset(self) -> Any:
        """Begin an episode in every environment."""
        seen, _ = self._envs.reset(seed=cast(Any, self._first_seeds or None))
        return seen

    def step_async(self, actions: Any) -> None:
        """Store the actions."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Carry out the actions."""
        seen, rewards, terminated, truncated, infos = self._envs.step(self._actions)
        reported = durations(infos, self.num_envs)
        self.elapsed = np.where(np.isnan(reported), 1.0, reported)
        self.rewards = rewards.astype(np.float32)
        infos_of_rows: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(terminated | truncated).tolist():
            infos_of_rows[row] = {
                "terminal_observation": infos["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
            }
        return seen, self.rewards.copy(), terminated | truncated, infos_of_rows

    def close(self) -> None:
        """Do nothing: the maker of the environments closes them."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002 - theirs
        """Return the masks, the only method that is called."""
        if method_name != _MASKS:
            raise AttributeError(f"these environments have only {_MASKS}(), no method {method_name!r}")
        return list(cast(Any, self._envs).action_masks())

    def has_attr(self, attr_name: str) -> bool:
        """Return whether the attribute is the masks, the only one that there is."""
        return attr_name == _MASKS

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002 - theirs
        """Return None: no attribute is available."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002 - theirs
        """Refuse: no attribute can be set."""
        raise AttributeError(f"{attr_name!r} cannot be set: these environments have no attributes")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002 - theirs
        """Return False: no environment is wrapped."""
        return [False] * self.num_envs
