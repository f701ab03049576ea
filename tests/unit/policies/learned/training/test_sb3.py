"""stable-baselines3 learns in our environments, and its weights are served, saved and trained further."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is another engine, and not needed otherwise")

from policies.api import Policy  # noqa: E402
from policies.learned.contention_rl.encoder import Encoding  # noqa: E402
from policies.learned.contention_rl.policy import ContentionAgent, RlBase  # noqa: E402
from policies.learned.training.run.training_run import TrainingRun  # noqa: E402
from policies.learned.training.sb3 import STEPS, Environments, Sb3ActorCritic, figures_of, learn, model_of, trainer  # noqa: E402
from policies.learned.training.systems import (  # noqa: E402
    FIGURE,
    CardDetails,
    Gym,
    SetupOverrides,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
)
from policies.learned.weights import weights  # noqa: E402
from simulator.papers.contention_rl.env import ContentionEnv  # noqa: E402
from simulator.training.backend import SimulatorBackend, simulator_backend  # noqa: E402
from tests.unit.policies.learned.examples.cards import card  # noqa: E402

ENVS = 8
HALF_HOUR: dict[str, Any] = {"nodes": "rules", "split": "packed", "candidates": 1}
OPTIONS: dict[str, Any] = {**HALF_HOUR, "reward": "jct", "round_s": 1800.0}
SETUP = TrainingSetup(
    workloads=(WorkloadSpec("contention-rl", {"jobs": 16, "demands": (1, 2)}),), cluster="2x4", slowdown=("pair-table",)
)
TRACES = 20


@dataclass(frozen=True)
class Recipe:
    rounds: int = 2


def environments(_recipe: Recipe, on: SimulationBackend) -> Any:
    return on.envs("headway/Contention-v0", ENVS, **OPTIONS)


def policy(_recipe: Recipe, _backend: SimulationBackend, network: Any) -> Policy:
    return RlBase(ContentionAgent(Encoding(num_nodes=2, gpus_per_node=4, **HALF_HOUR), network))


def no_recipe(_run: TrainingRun, _backend: SimulationBackend, _recipe: Recipe) -> None:
    raise AssertionError("the engine trains, not the recipe")


SYSTEM = TrainableSystem(
    name="tiny",
    summary="a tiny world",
    recipe=Recipe,
    setup=lambda _: SETUP,
    card=lambda *_: CardDetails("contention-rl/1", ("2x4",)),
    train=no_recipe,
    gym=Gym(environments, policy),
)


@pytest.fixture
def world() -> Iterator[SimulatorBackend]:
    it = simulator_backend(SETUP, SetupOverrides())
    yield it
    it.close()


def train(folder: Path, on: SimulationBackend, *, resume: bool = False) -> TrainingRun:
    its = replace(card(system="tiny-sb3"), data_sha256=on.data_sha256)
    with TrainingRun(folder, its, resume=resume, better="lower", point_every_s=0.0) as run:
        trainer(SYSTEM)(run, on, Recipe())
    return run


def rewards(on: SimulatorBackend, act: Callable[[Any, Any], int]) -> np.ndarray[Any, Any]:
    """Rewards of an episode on each of some test traces."""
    env = ContentionEnv(traces=on.data_of.tests[:TRACES], cluster="2x4", slowdown=("pair-table",), **OPTIONS)
    sums = np.zeros(TRACES)
    for number in range(TRACES):
        seen, _ = env.reset(seed=number, options={"trace": number})
        over = False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(np.int64(act(seen, env.action_masks())))
            sums[number] += reward
            over = terminated or truncated
    return sums


def most_likely(network: Any, seen: Any, masks: Any) -> Any:
    """The most likely possible action of each row, which an agent takes when it serves."""
    with torch.inference_mode():
        logits, _ = network(torch.as_tensor(seen))
        return logits.masked_fill(~torch.as_tensor(masks), -torch.inf).argmax(1).numpy()


@pytest.mark.slow
def test_it_learns_to_be_better_than_random_actions(world: SimulatorBackend, tmp_path: Path) -> None:
    """The gain is more than three standard errors of the differences by trace, which chance gives once in some hundred times."""
    run = train(tmp_path / "run", world)
    network = Sb3ActorCritic(model_of(Environments(environments(Recipe(), world)), seed=0))
    tensors, _ = weights.load(
        run.best_folder, "tiny-sb3", system="tiny-sb3", encoder="toy/1", network=network.state_dict()
    )
    weights.fill(network, tensors)
    rng = np.random.default_rng(0)
    learned = rewards(world, lambda seen, mask: int(most_likely(network, seen[None], mask[None])[0]))
    at_random = rewards(world, lambda _, mask: int(rng.choice(np.flatnonzero(mask))))
    gain = learned - at_random
    assert gain.mean() > 3 * gain.std(ddof=1) / TRACES**0.5
    assert gain.mean() > 0.05 * abs(at_random.mean())


class Failing:
    """A backend whose second validation fails."""

    def __init__(self, on: SimulatorBackend) -> None:
        self._on, self._asked = on, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._on, name)

    def validate(self, policy: Policy) -> Mapping[str, float]:
        self._asked += 1
        if self._asked == 2:
            raise KeyboardInterrupt
        return self._on.validate(policy)


@pytest.mark.slow  # as for each other system
def test_it_continues_to_the_same_weights(world: SimulatorBackend, tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", world)
    broken: Any = Failing(world)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", broken)
    run = train(tmp_path / "run", world, resume=True)
    for kind in ("safetensors", "json"):
        name = f"tiny-sb3.{kind}"
        assert (run.best_folder / name).read_bytes() == (alone.best_folder / name).read_bytes()


def test_it_says_how_learning_goes_and_leaves_nothing_in_tmp(
    world: SimulatorBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    envs = Environments(environments(Recipe(), world))
    envs.begin_with(range(ENVS))
    model = model_of(envs, seed=0)
    learn(model, 1)
    assert {"value_loss", "policy_gradient_loss", "entropy_loss"} <= figures_of(model).keys()
    left = [path.name for path in tmp_path.iterdir()]
    # torch makes a folder of its own for compiled code when its compiler is first imported, which may be here.
    assert [name for name in left if not name.startswith("torchinductor_")] == []


def test_rewards_are_discounted_by_the_time_of_each_step(world: SimulatorBackend) -> None:
    """Starts take no time, and waiting takes rounds: both are in the buffer that the model learns from."""
    envs = Environments(environments(Recipe(), world))
    envs.begin_with(range(ENVS))
    model = model_of(envs, seed=0)
    learn(model, 1)
    durations = model.rollout_buffer.durations
    assert durations.shape == (STEPS, ENVS)
    assert set(np.unique(durations)) >= {0.0, 1.0}


def test_its_weights_are_evaluated_like_those_of_the_system(world: SimulatorBackend) -> None:
    network = Sb3ActorCritic(model_of(Environments(environments(Recipe(), world)), seed=0))
    figures = world.validate(policy(Recipe(), world, network))
    assert figures[FIGURE] > 0


def test_environments_have_masks_and_no_other_attribute(world: SimulatorBackend) -> None:
    envs = Environments(environments(Recipe(), world))
    assert np.asarray(envs.env_method("action_masks")).shape[0] == ENVS
    with pytest.raises(AttributeError, match=r"these environments have only action_masks\(\), no method 'render'"):
        envs.env_method("render")
    with pytest.raises(AttributeError, match="'speed' cannot be set"):
        envs.set_attr("speed", 1)
