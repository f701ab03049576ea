"""DL2's system: the whole training in the simulator, interrupted and continued."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.errors import PolicyError, TrainingError, UnfinishedError, WeightsError
from policies.learned.dl2.network import SHARED, DL2Network
from policies.learned.dl2.recipe import PPO, Recipe
from policies.learned.dl2.reinforcement.on_policy import OnPolicyLearning
from policies.learned.dl2.reinforcement.slots import SlotLearning
from policies.learned.dl2.serving import Served
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.supervised import Supervised
from policies.learned.dl2.system import ENCODER, ENVIRONMENT, SYSTEM, agent, setup, teacher_agent
from policies.learned.training.agents import AgentInEnvironment, NetworkAgent
from policies.learned.training.run.progress import TrainingProgress
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides, SimulationBackend
from policies.learned.weights import weights
from policies.learned.weights.card import draft
from simulator.traces.trace import NS_PER_S, Trace
from simulator.traces.write import write_trace
from simulator.training.backend import simulator_backend

RECIPE = Recipe(
    jobs=5, mean_gap_s=600.0, concurrent=4, neurons=16, supervised_rounds=2, supervised_updates=20, batch=32, envs=2, rounds=2,
    critic_rounds=1, validate_every=1, supervised_tolerance=0.0, supervised_learning_rate=1e-5,
)  # fmt: skip


class LeftError(Exception):
    """Raised in place of a kill."""


def small_backend() -> SimulationBackend:
    return simulator_backend(replace(setup(RECIPE), cluster="2x8", validation_seeds=(500,)), SetupOverrides())


def run_of(found: SimulationBackend, recipe: Recipe, folder: Path, resume: bool = False) -> TrainingRun:
    details = SYSTEM.card(recipe, found)
    card = draft(
        system="dl2", recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip
    progress = TrainingProgress(io.StringIO())
    return TrainingRun(folder, card, resume=resume, better="lower", point_every_s=0.0, progress=progress)


def trained(folder: Path, resume: bool = False, recipe: Recipe = RECIPE) -> dict[str, weights.Array]:
    found = small_backend()
    try:
        with run_of(found, recipe, folder, resume) as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    return weights.load(folder / "best", "dl2", system="dl2", encoder=ENCODER)[0]


@pytest.mark.parametrize(
    ("one_round", "recipe"),
    [
        pytest.param((Supervised, "run_round"), RECIPE, marks=pytest.mark.slow),
        ((SlotLearning, "run_round"), RECIPE),
        pytest.param(
            (OnPolicyLearning, "run_round"),
            replace(RECIPE, algorithm=PPO, network=SHARED, smoothing=0.3),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_interrupted_training_gives_the_weights_of_an_uninterrupted_one(
    one_round: tuple[type, str], recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", recipe=recipe)
    once = getattr(*one_round)
    rounds = 0

    def leave(self: Any, *arguments: Any, **named: Any) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise LeftError
        figures: dict[str, float] = once(self, *arguments, **named)
        return figures

    monkeypatch.setattr(*one_round, leave)
    with pytest.raises(LeftError):
        trained(tmp_path / "left", recipe=recipe)
    found = trained(tmp_path / "left", resume=True, recipe=recipe)
    assert all(np.array_equal(array, found[each]) for each, array in whole.items())
    served = agent(str(tmp_path / "left"))
    assert (served.env, served.options, served.needs) == (
        "headway/ElasticAllocation-v0",
        {"concurrent": 4},
        ("concurrent",),
    )
    assert isinstance(served.agent, NetworkAgent)


def test_jobs_with_a_minimum_are_trained_on_from_one_gpu_on(tmp_path: Path) -> None:
    # Given a trace of jobs that need four GPUs, to which the teacher gives two
    jobs = 40
    ids, submit = [str(row) for row in range(jobs)], np.arange(jobs) * 600 * NS_PER_S
    write_trace(Trace.of("mine", ids, submit, [4] * jobs, [3000 * NS_PER_S] * jobs), tmp_path / "mine.csv")
    recipe = replace(RECIPE, supervised_rounds=1, supervised_updates=5, rounds=0)
    given = SetupOverrides(traces=(str(tmp_path / "mine.csv"),), cluster="4x8")
    found = simulator_backend(setup(recipe), given)
    # When dl2 is trained on it
    try:
        with run_of(found, recipe, tmp_path / "run") as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    # Then it learns, and the remark says in what jobs differ; policies are compared on jobs with their minimum
    assert (tmp_path / "run" / "best" / "dl2.safetensors").is_file()
    assert [note.rpartition(": ")[2] for note in found.notes] == [
        "40 jobs that need more than one GPU run from one GPU on in episodes"
    ]
    assert {tuple(part.trace.min_gpus.tolist()) for part in found.data_of.parts} == {(4,) * jobs}
    assert found.data_sha256 != simulator_backend(replace(setup(recipe), one_by_one=False), given).data_sha256


class Once:
    """A backend in which the agent leaves jobs unfinished in its second validation, after the teacher's and its first."""

    def __init__(self, backend: SimulationBackend) -> None:
        self._backend = backend
        self.validations = 0

    def validate(self, policy: Any) -> Any:
        self.validations += 1
        if self.validations == 3:
            raise UnfinishedError("the agent left 1 of 5 jobs unfinished")
        return self._backend.validate(policy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def test_a_validation_that_leaves_jobs_unfinished_is_the_worst_and_the_training_goes_on(tmp_path: Path) -> None:
    found: Any = Once(small_backend())
    try:
        with run_of(found, RECIPE, tmp_path) as run:
            SYSTEM.train(run, found, RECIPE)
    finally:
        found.close()
    assert found.validations > 3
    assert run.early.best is not None
    assert np.isfinite(run.early.best)


@pytest.mark.parametrize("critic_only", [True, False])
def test_the_value_network_alone_learns_first(critic_only: bool) -> None:
    found, columns = small_backend(), StateColumns(RECIPE.concurrent, 8)
    network = DL2Network(columns, RECIPE.neurons, RECIPE.layers)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    try:
        envs = found.envs(ENVIRONMENT, RECIPE.envs, concurrent=RECIPE.concurrent)
        learning = SlotLearning(envs, columns, network, RECIPE, seed=1)
        figures = learning.run_round([1, 2], np.random.default_rng(1), critic_only=critic_only)
    finally:
        found.close()
    assert figures["updates"] > 0
    changed = {name.split(".")[0] for name, each in network.state_dict().items() if not each.equal(before[name])}
    assert changed == ({"critic"} if critic_only else {"actor", "critic"})


def learned(recipe: Recipe) -> tuple[SlotLearning, DL2Network, dict[str, torch.Tensor]]:
    """Return what learns after one round, its networks, and their weights before it."""
    found, columns = small_backend(), StateColumns(recipe.concurrent, 8)
    network = DL2Network(columns, recipe.neurons, recipe.layers)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    try:
        envs = found.envs(
            ENVIRONMENT,
            recipe.envs,
            workers=0,
            concurrent=recipe.concurrent,
            reward=recipe.reward,
        )
        learning = SlotLearning(envs, columns, network, recipe, seed=1)
        assert learning.run_round([1, 2], np.random.default_rng(1), critic_only=False)["updates"] > 0
    finally:
        found.close()
    return learning, network, before


def rows_of(learning: SlotLearning, cluster: int = 0) -> dict[str, weights.Array]:
    columns: dict[str, weights.Array] = learning.clusters[cluster].memory.state_dict()["columns"]
    return columns


def test_a_round_can_have_a_number_of_slots() -> None:
    found, columns = small_backend(), StateColumns(RECIPE.concurrent, 8)
    recipe = replace(RECIPE, slots=40, supervised_samples=50, replay=False)
    network = DL2Network(columns, recipe.neurons, recipe.layers)
    try:
        envs = found.envs(ENVIRONMENT, recipe.envs, workers=0, concurrent=recipe.concurrent)
        learning = SlotLearning(envs, columns, network, recipe, seed=1)
        # The last step can end a slot in each of the two environments.
        assert learning.run_round([1, 2], np.random.default_rng(1), critic_only=False)["updates"] in {40, 41}
        assert len(Supervised(envs, columns, network, recipe).shown([1, 2])["actions"]) == 50
    finally:
        found.close()


def test_samples_are_used_no_more_often_than_the_recipe_says() -> None:
    found, columns = small_backend(), StateColumns(RECIPE.concurrent, 8)
    recipe = replace(RECIPE, slots=60, uses=1.0)
    try:
        envs = found.envs(ENVIRONMENT, recipe.envs, workers=0, concurrent=recipe.concurrent)
        learning = SlotLearning(envs, columns, DL2Network(columns, recipe.neurons, recipe.layers), recipe, seed=1)
        updates = learning.run_round([1, 2], np.random.default_rng(1), critic_only=False)["updates"]
        samples = len(learning.clusters[0].memory)
    finally:
        found.close()
    assert samples / recipe.batch - 2 <= updates <= samples / recipe.batch


def test_with_the_papers_preset_each_slot_has_a_step() -> None:
    recipe = replace(
        SYSTEM.presets["paper"], **{name: getattr(RECIPE, name) for name in ("concurrent", "neurons", "envs", "batch")}
    )
    found, columns = small_backend(), StateColumns(recipe.concurrent, 8)
    try:
        envs = found.envs(ENVIRONMENT, recipe.envs, workers=0, concurrent=recipe.concurrent)
        network = DL2Network(columns, recipe.neurons, recipe.layers)
        learning = SlotLearning(envs, columns, network, replace(recipe, slots=60), seed=1)
        first = learning.run_round([1, 2], np.random.default_rng(1), critic_only=False)["updates"]
        second = learning.run_round([3, 4], np.random.default_rng(2), critic_only=False)["updates"]
    finally:
        found.close()
    # Only the first slots have none, until the memory has a batch.
    assert first < second == 60


def test_a_round_reports_the_share_of_poor_states_with_and_without_exploration() -> None:
    for epsilon in (0.0, 0.4):
        found, columns = small_backend(), StateColumns(RECIPE.concurrent, 8)
        recipe = replace(RECIPE, epsilon=epsilon)
        try:
            envs = found.envs(ENVIRONMENT, recipe.envs, workers=0, concurrent=recipe.concurrent)
            learning = SlotLearning(envs, columns, DL2Network(columns, recipe.neurons, recipe.layers), recipe, seed=1)
            figures = learning.run_round([1, 2], np.random.default_rng(1), critic_only=False)
        finally:
            found.close()
        # An untrained policy gives workers and servers at random.
        assert 0.0 < figures["poor"] < 1.0


def test_without_replay_a_step_is_on_the_slot_alone() -> None:
    learning, *_ = learned(replace(RECIPE, replay=False))
    assert len(learning.clusters[0].memory) == 0


def test_without_a_value_baseline_the_value_network_does_not_learn() -> None:
    learning, network, before = learned(replace(RECIPE, value_baseline=False))
    changed = {name.split(".")[0] for name, each in network.state_dict().items() if not each.equal(before[name])}
    assert changed == {"actor"}
    assert learning.parts()["average"].state_dict()["value"] > 0


def test_every_cluster_has_a_memory_of_its_own_and_all_train_the_same_networks() -> None:
    learning, *_ = learned(replace(RECIPE, clusters=2))
    first, second = (rows_of(learning, cluster)["seen"] for cluster in (0, 1))
    assert len(first) > RECIPE.batch
    assert len(second) > RECIPE.batch
    assert not np.array_equal(first[: RECIPE.batch], second[: RECIPE.batch])
    with pytest.raises(TrainingError, match="no more than the 2 environments"):
        replace(RECIPE, clusters=3)


@pytest.mark.parametrize("reward", ["slot", "job"])
def test_samples_have_the_reward_of_their_slot_or_of_their_job(reward: str) -> None:
    rows = rows_of(learned(replace(RECIPE, reward=reward))[0])
    void = rows["actions"] == 3 * RECIPE.concurrent
    assert void.any()
    assert (rows["rewards"][void] == 0).all() == (reward == "job")


def test_weights_with_a_value_network_are_served_too(tmp_path: Path) -> None:
    actor = trained(tmp_path, recipe=replace(RECIPE, rounds=1, supervised_rounds=1))
    assert {name.partition(".")[0] for name in actor} == {"actor"}
    network = DL2Network(StateColumns(RECIPE.concurrent, 8), RECIPE.neurons, RECIPE.layers)
    _, card = weights.load(tmp_path / "best", "dl2", system="dl2", encoder=ENCODER)
    weights.save(tmp_path / "best", "dl2", network.state_dict(), card)
    served = agent(str(tmp_path)).agent
    state, mask = np.zeros((4, 13), dtype=np.float32), np.ones(13, dtype=np.bool_)
    assert served.act(state, mask) == NetworkAgent(Served(network, StateColumns(4, 8)), (4, 13)).act(state, mask)


def test_an_agent_that_prefers_void_finishes_all_jobs() -> None:
    found, columns = small_backend(), StateColumns(RECIPE.concurrent, 8)
    network = DL2Network(columns, RECIPE.neurons, RECIPE.layers)
    with torch.no_grad():
        network.actor[-1].bias[-1] = 1e6  # type: ignore[operator,index] # the last action
    served = AgentInEnvironment(
        NetworkAgent(Served(network, columns), columns.shape), ENVIRONMENT, {"concurrent": RECIPE.concurrent}
    )
    try:
        assert found.validate(served)["avg_jct_s"] > 0
    finally:
        found.close()


def test_the_supervised_phase_ends_at_the_teachers_performance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once, rounds = Supervised.run_round, []

    def noted(self: Supervised, *arguments: Any) -> dict[str, float]:
        rounds.append(1)
        return once(self, *arguments)

    monkeypatch.setattr(Supervised, "run_round", noted)
    trained(tmp_path, recipe=replace(RECIPE, supervised_tolerance=100.0, rounds=1))
    assert len(rounds) == 1


@pytest.mark.parametrize("teacher", ["srsf", "tetris:elastic=true", "dl2-optimus"])
def test_any_policy_and_any_baseline_of_the_environment_is_a_teacher(teacher: str, tmp_path: Path) -> None:
    recipe = replace(RECIPE, teacher=teacher, supervised_rounds=1, rounds=0)
    found = small_backend()
    try:
        taught = teacher_agent(recipe, StateColumns(recipe.concurrent, 8), {}, found)
        shown = found.demonstrate(taught, [1, 2])
        with run_of(found, recipe, tmp_path) as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    steps = len(shown["actions"])
    assert steps > 10 and shown["seen"].shape == (steps, 4, 13)
    assert shown["masks"][np.arange(steps), shown["actions"]].all(), "what it shows is possible"
    assert weights.load(tmp_path / "best", "dl2", system="dl2", encoder=ENCODER)[1].recipe["teacher"] == teacher


@pytest.mark.parametrize(
    ("teacher", "message"),
    [("oracle", "oracle"), ("srsf:none=1", "none")],
)
def test_a_teacher_that_there_is_not_is_refused_before_the_first_round(
    teacher: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises((TrainingError, PolicyError), match=message):
        trained(tmp_path / "begun", recipe=replace(RECIPE, teacher=teacher))
    assert not (tmp_path / "begun").exists()
    with pytest.raises((TrainingError, PolicyError), match=message):
        trained(tmp_path / "begun", recipe=replace(RECIPE, teacher=teacher, supervised_rounds=0))


def test_a_teacher_of_another_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="rules of RL-TAPS act in"):
        trained(tmp_path, recipe=replace(RECIPE, teacher="taps-sjf"))


def test_a_training_can_begin_with_the_weights_of_another_one(tmp_path: Path) -> None:
    taught = trained(tmp_path / "taught", recipe=replace(RECIPE, rounds=0))
    # One round in which only the value network learns leaves them.
    found = trained(tmp_path / "next", recipe=replace(RECIPE, start=str(tmp_path / "taught"), rounds=1))
    assert all(np.array_equal(array, found[each]) for each, array in taught.items())
    with pytest.raises(TrainingError, match="networks have another size"):
        trained(tmp_path / "wider", recipe=replace(RECIPE, start=str(tmp_path / "taught"), neurons=17))


def test_a_training_without_the_bundle_action_is_served_without_it(tmp_path: Path) -> None:
    trained(tmp_path, recipe=replace(RECIPE, bundle=False, rounds=1, supervised_rounds=1))
    assert agent(str(tmp_path)).options == {"concurrent": 4, "bundle": False}


def test_no_weights_come_with_headway_and_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        agent(str(tmp_path))
