"""RL-TAPS' system: a whole training in the simulator, interrupted and continued; and that it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from policies.errors import TrainingError, WeightsError
from policies.learned.algorithms.reinforce import Reinforce
from policies.learned.rl_taps.episodes import play, sequences_of
from policies.learned.rl_taps.image_columns import PAPER
from policies.learned.rl_taps.network import RlTapsNetwork
from policies.learned.rl_taps.recipe import STREAMING, Recipe
from policies.learned.rl_taps.system import ENCODER, ENVIRONMENT, SYSTEM, agent, columns_of, setup
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides, SimulationBackend
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, draft
from simulator.traces.trace import NS_PER_S, Trace
from simulator.traces.write import write_trace
from simulator.training.backend import simulator_backend

RECIPE = Recipe(
    jobs=5, max_steps=12, sequences=3, episodes=4, batch=2, rounds=3, validate_every=2, hidden=16, restart_s=5.0,
    imitation_rounds=2, imitation_updates=3, imitation_batch=8,
)  # fmt: skip


class LeftError(Exception):
    """Raised in place of a kill."""


def small_backend(recipe: Recipe = RECIPE) -> SimulationBackend:
    return simulator_backend(replace(setup(recipe), cluster="4x4", validation_seeds=(500, 501)), SetupOverrides())


def card_of(recipe: Recipe, found: SimulationBackend) -> ModelCard:
    details = SYSTEM.card(recipe, found)
    return draft(
        system="rl-taps", recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip


def trained(folder: Path, resume: bool = False, recipe: Recipe = RECIPE) -> ModelCard:
    """Train; return the card of the best weights."""
    found = small_backend(recipe)
    try:
        with TrainingRun(folder, card_of(recipe, found), resume=resume, better="lower", point_every_s=0.0) as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    return ModelCard.from_json((folder / "best" / "rl-taps.json").read_text(), "")


def arrays_in(folder: Path) -> dict[str, weights.Array]:
    return weights.load(folder / "best", "rl-taps", system="rl-taps", encoder=ENCODER)[0]


def test_an_interrupted_training_gives_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = trained(tmp_path / "whole")
    assert card.results["validation"] == card.results["mean_slowdown"]
    assert "avg_jct_s" in card.results or card.results["finished"] < 5
    once, rounds = Reinforce.update_all, 0

    def leave(self: Any, sequences: Any) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise LeftError
        return once(self, sequences)

    monkeypatch.setattr(Reinforce, "update_all", leave)
    with pytest.raises(LeftError):
        trained(tmp_path / "left")
    trained(tmp_path / "left", resume=True)
    found = arrays_in(tmp_path / "left")
    assert all(np.array_equal(array, found[each]) for each, array in arrays_in(tmp_path / "whole").items())
    served = agent(str(tmp_path / "left"))
    assert (served.env, served.options["restart_s"], served.options["max_steps"]) == (ENVIRONMENT, 5.0, 12)


class Evaluated:
    """A backend that records the slowdowns of its validations."""

    def __init__(self, backend: SimulationBackend) -> None:
        self._backend = backend
        self.slowdowns: list[float] = []

    def outcomes(self, agent: Any) -> Any:
        figures = self._backend.outcomes(agent)
        self.slowdowns.append(figures["mean_slowdown"])
        return figures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    """Its slowdown on validation sequences falls below that of the network before training."""
    recipe = Recipe(
        jobs=8, max_steps=30, sequences=40, rounds=100, validate_every=50, hidden=64, gamma=0.7, learning_rate=0.003,
        restart_s=0.0, imitation_rounds=0,
    )  # fmt: skip
    found: Any = Evaluated(small_backend(recipe))
    try:
        with TrainingRun(tmp_path, card_of(recipe, found), resume=False, better="lower") as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    before, *after = found.slowdowns
    assert len(after) == 2
    assert after[-1] < 0.95 * before


def test_the_network_of_the_paper() -> None:
    network = RlTapsNetwork(PAPER, 528)
    logits, values = network(torch.zeros((2, 10, 158), dtype=torch.uint8))
    assert (tuple(logits.shape), values.tolist()) == ((2, 32, 11), [0.0, 0.0])
    assert sum(each.numel() for each in network.parameters()) == 1_020_096 + 528 + 352
    images = torch.full((1, 10, 158), 10, dtype=torch.uint8)
    images[:, :, PAPER.first_of_slots :] = 1
    network.logits(images)
    assert (int(images.min()), int(images.max())) == (1, 10)


def test_an_episode_is_recorded_to_its_end_and_no_further() -> None:
    found = small_backend()
    try:
        envs = found.envs(ENVIRONMENT, 6, max_steps=12)
        network = RlTapsNetwork(columns_of(16), 16)
        one, two = play(envs, network, [11, 12], np.random.default_rng(0), 12)
        again, _ = play(envs, network, [11, 12], np.random.default_rng(0), 12)
    finally:
        found.close()
    assert one.actions.shape == (*one.played.shape, 16)
    assert one.played.shape[1] == two.played.shape[1] == 3
    assert (one.actions == again.actions).all()
    # Episodes of one sequence begin alike, and differ by their actions.
    assert (one.observations[0] == one.observations[0, 0]).all()
    assert not (one.actions[:, 0] == one.actions[:, 1]).all()
    assert (np.diff(one.played.astype(int), axis=0) <= 0).all()
    assert one.played[0].all()


def test_the_order_of_sequences() -> None:
    recipe = Recipe(sequences=7, batch=2, data=STREAMING, fresh_every=2)
    epochs = [
        [seed for number in range(3 * epoch, 3 * epoch + 3) for seed in sequences_of(recipe, 1, number)]
        for epoch in range(4)
    ]
    assert all(len(set(epoch)) == 6 for epoch in epochs)
    assert len(set(epochs[0] + epochs[1])) == 7
    assert epochs[0] != epochs[1]
    assert not set(epochs[0]) & set(epochs[2])
    static = replace(recipe, data="static")
    assert {*sequences_of(static, 1, 0)} <= {*epochs[0], *epochs[1]}
    assert {seed for number in range(60) for seed in sequences_of(static, 1, number)} == {*epochs[0], *epochs[1]}


def test_a_training_continues_with_the_weights_of_another(tmp_path: Path) -> None:
    imitated = trained(tmp_path / "first", recipe=replace(RECIPE, rounds=0))
    again = trained(tmp_path / "second", recipe=replace(RECIPE, rounds=1, start=str(tmp_path / "first")))
    assert again.results["validation"] <= imitated.results["validation"]
    with pytest.raises(TrainingError, match="another size"):
        trained(tmp_path / "third", recipe=replace(RECIPE, rounds=1, hidden=8, start=str(tmp_path / "first")))


def test_stored_weights_are_halves_that_are_validated(tmp_path: Path) -> None:
    trained(tmp_path, recipe=replace(RECIPE, rounds=1))
    assert {array.dtype for array in arrays_in(tmp_path).values()} == {np.dtype(np.float16)}


def test_an_agent_refuses_images_of_another_cluster(tmp_path: Path) -> None:
    trained(tmp_path, recipe=replace(RECIPE, rounds=1))
    served = agent(str(tmp_path))
    with pytest.raises(TrainingError, match="train an agent for this one"):
        served.agent.begin(gymnasium.make(ENVIRONMENT), 0)
    with pytest.raises(WeightsError):
        agent(str(tmp_path / "nothing"))


def test_what_is_no_simulation_cannot_be_compared_with_policies(tmp_path: Path) -> None:
    trained(tmp_path, recipe=replace(RECIPE, rounds=1))
    found = small_backend()
    try:
        with pytest.raises(TrainingError, match="headway-sim act"):
            found.compare({"ours": agent(str(tmp_path))}, 1, lambda _share: None)
    finally:
        found.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"restart_s": -1.0}, "restart_s is -1.0"),
        ({"gamma": 1.1}, "gamma is 1.1"),
        ({"episodes": 1}, "at least 2"),
        ({"data": "online"}, "static or streaming"),
        ({"reward": "jct"}, "throughput or slowdown"),
        ({"batch": 201}, "at most the 200 sequences"),
        ({"rounds": 0, "imitation_rounds": 0}, "there are no rounds"),
        ({"imitation_updates": 0}, "imitation_updates is 0"),
    ],
)
def test_impossible_recipes_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Recipe(**values)


def test_the_presets_are_the_papers_trainings() -> None:
    paper, streaming = SYSTEM.presets["paper"], SYSTEM.presets["streaming"]
    assert paper.rounds * paper.batch == 50 * 200
    assert (streaming.rounds * streaming.batch, streaming.data) == (50 * 60, STREAMING)


@pytest.mark.parametrize("widest", [PAPER.widest, 16])
def test_jobs_of_more_gpus_than_a_slot_shows_are_left_out_unless_slots_are_wider(tmp_path: Path, widest: int) -> None:
    recipe = replace(RECIPE, widest=widest, rounds=0)
    jobs = 50
    sizes = [16 if row % 5 == 0 else 2 for row in range(jobs)]
    ids, submit = [str(row) for row in range(jobs)], np.arange(jobs) * 60 * NS_PER_S
    write_trace(Trace.of("mine", ids, submit, sizes, [300 * NS_PER_S] * jobs), tmp_path / "mine.csv")
    found = simulator_backend(setup(recipe), SetupOverrides(traces=(str(tmp_path / "mine.csv"),), cluster="4x4"))
    try:
        card = card_of(recipe, found)
        with TrainingRun(tmp_path / "run", card, resume=False, better="lower") as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    assert [note.rpartition(": ")[2] for note in found.notes] == (
        [] if widest == 16 else ["10 jobs of a number of GPUs that the system cannot place (16)"]
    )
    assert card.recipe.get("widest", PAPER.widest) == widest
    assert agent(str(tmp_path / "run")).options["widest"] == widest
