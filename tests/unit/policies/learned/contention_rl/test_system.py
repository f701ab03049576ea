"""`headway-policy train contention-rl`: environments are what the encoding says, and a training leaves weights that serve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from policies.errors import EncoderError, TrainingError  # noqa: E402
from policies.learned.contention_rl.placement_actions import EVEN, PACKED, RULES  # noqa: E402
from policies.learned.contention_rl.policy import ContentionAgent, RlBase  # noqa: E402
from policies.learned.contention_rl.recipe import Recipe  # noqa: E402
from policies.learned.contention_rl.system import SYSTEM, card_details, encoding_of, environments, setup, train  # noqa: E402
from policies.learned.training.run.training_run import TrainingRun  # noqa: E402
from policies.learned.training.systems import TEST_SEEDS, SetupOverrides, TrainingSetup, WorkloadSpec  # noqa: E402
from policies.learned.weights import weights  # noqa: E402
from simulator.traces.trace import NS_PER_S, Trace  # noqa: E402
from simulator.traces.write import write_trace  # noqa: E402
from simulator.training.backend import SimulatorBackend, simulator_backend  # noqa: E402
from tests.unit.policies.learned.contention_rl.agents import card_of  # noqa: E402

SMALL = Recipe(envs=4, hidden=16, pair=8, steps=24, batches=1, stages=2, minibatch=64, epochs=2)
WORLD = TrainingSetup(
    workloads=(WorkloadSpec("contention-rl", {"jobs": 12, "demands": (1, 2, 4)}),),
    cluster="2x4",
    slowdown=("pair-table",),
    papers=("contention-rl",),
    validation_seeds=(500,),
)


@pytest.fixture
def small() -> Any:
    made = simulator_backend(WORLD, SetupOverrides())
    yield made
    made.close()


def test_the_setup_is_the_papers() -> None:
    made = setup(Recipe())
    assert [each.parameters["mix"] for each in made.workloads] == ["normal", "heavy", "medium", "low"]
    assert {each.parameters["demands"] for each in made.workloads} == {(2, 4, 8)}
    assert not set(made.validation_seeds) & set(TEST_SEEDS)
    assert setup(Recipe(arrivals="poisson", load=0.7)).workloads[0].parameters["load"] == 0.7
    assert isinstance(getattr(SYSTEM.recipe(), SYSTEM.rounds), int)


def test_environments_show_and_do_what_the_encoding_says(small: SimulatorBackend) -> None:
    encoding, envs = encoding_of(SMALL, small), environments(SMALL, small)
    assert (encoding.num_nodes, encoding.gpus_per_node) == (2, 4)
    assert envs.single_observation_space.shape == encoding.shape
    assert envs.single_action_space.n == encoding.actions  # type: ignore[attr-defined]
    assert all(0 < value < 1 for value in encoding.usual)
    assert card_details(SMALL, small).shapes == ("2 nodes of at most 4 GPUs",)


def test_a_cluster_of_more_lists_than_can_be_learned_is_refused() -> None:
    made = simulator_backend(WORLD, SetupOverrides(cluster="64x8"))
    with pytest.raises(EncoderError, match="lists"):
        card_details(SMALL, made)


def trace_of(path: Path, gpus: tuple[int, ...], jobs: int = 60) -> str:
    """A trace of jobs of these numbers of GPUs in turn."""
    ids = [str(row) for row in range(jobs)]
    submit = np.arange(jobs) * 300 * NS_PER_S
    write_trace(
        Trace.of("mine", ids, submit, [gpus[row % len(gpus)] for row in range(jobs)], [600 * NS_PER_S] * jobs), path
    )
    return str(path)


@pytest.mark.parametrize(("split", "left_out"), [(EVEN, True), (PACKED, False)])
def test_jobs_that_cannot_be_divided_are_in_no_episode_and_are_counted(
    tmp_path: Path, split: str, left_out: bool
) -> None:
    # Given jobs of 36 GPUs on five nodes of 8, which neither 1, 2 nor 4 nodes can hold
    recipe = replace(SMALL, split=split)
    given = SetupOverrides(traces=(trace_of(tmp_path / "mine.csv", (2, 36, 4)),), cluster="5x8")
    made = simulator_backend(setup(recipe), given)
    # When a system is trained on them
    try:
        envs: Any = environments(recipe, made)
        envs.reset(seed=[1, 2, 3, 4])
        card = card_details(recipe, made)
    finally:
        made.close()
    # Then they are left out and counted, or with another split part of the training
    assert (max(trace.num_gpus.max() for trace in made.data_of.training) == 36) is not left_out
    assert [note.partition(": ")[2] for note in made.notes] == [
        "left out of episodes: 20 jobs of a number of GPUs that the system cannot place (36)"
    ] * left_out
    # And the jobs on which policies are compared are the same, while the digest tells the trainings apart
    assert [part.part.text() for part in made.data_of.parts] == ["jobs 49 to 60"]
    assert card.settings is not None
    assert card.settings["split"] == split
    plain = simulator_backend(replace(setup(recipe), places=None), given)
    assert (plain.data_sha256 != made.data_sha256) is left_out


def test_a_larger_cluster_is_trained_on_by_rules(tmp_path: Path) -> None:
    recipe = replace(SMALL, nodes=RULES)
    made = simulator_backend(WORLD, SetupOverrides(cluster="16x8"))
    try:
        envs = environments(recipe, made)
        encoding = encoding_of(recipe, made)
        assert envs.single_action_space.n == encoding.actions == 1 + 3 * 5 * 3  # type: ignore[attr-defined]
        kept = trained(tmp_path / "run", made, recipe)
    finally:
        made.close()
    assert "contention-rl.safetensors" in kept
    assert ContentionAgent.load(str(tmp_path / "run")).encoder.encoding == encoding
    assert SYSTEM.agent is not None
    assert SYSTEM.agent(str(tmp_path / "run")).options["nodes"] == RULES


def test_words_of_the_recipe_are_checked() -> None:
    for name in ("nodes", "split"):
        with pytest.raises(TrainingError, match=f"{name} is 'x'"):
            replace(SMALL, **{name: "x"})  # type: ignore[arg-type]


def trained(folder: Path, on: SimulatorBackend, recipe: Recipe = SMALL) -> dict[str, bytes]:
    """The best weights of a training in that folder, and their card."""
    with TrainingRun(folder, card_of(recipe, on), resume=False, better=SYSTEM.better) as run:
        train(run, on, recipe)
    return {path.name: path.read_bytes() for path in run.best_folder.iterdir()}


def test_a_training_leaves_weights_that_both_policies_serve(tmp_path: Path, small: SimulatorBackend) -> None:
    kept = trained(tmp_path / "whole", small)
    again = trained(tmp_path / "again", small)
    assert kept == again
    _, card = weights.load(tmp_path / "whole" / "best", SYSTEM.name, system=SYSTEM.name, encoder="contention-rl/2")
    both = card.results["avg_jct_s"] * card.results["base_avg_service_s"]
    assert card.results["validation"] == card.results["both_s"] == both**0.5
    assert card.results["base_avg_jct_s"] > 0
    assert ContentionAgent.load(str(tmp_path / "whole")).encoder.encoding == encoding_of(SMALL, small)
    decision = RlBase(str(tmp_path / "whole")).decide(small.example())
    assert decision.allocation
