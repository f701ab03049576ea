"""`headway-policy train contention-rl`: environments are what the encoding says, and a training leaves weights that serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from policies.errors import EncoderError  # noqa: E402
from policies.learned.contention_rl.policy import ContentionAgent, RlBase  # noqa: E402
from policies.learned.contention_rl.recipe import Recipe  # noqa: E402
from policies.learned.contention_rl.system import SYSTEM, card_details, encoding_of, environments, setup, train  # noqa: E402
from policies.learned.training.run.training_run import TrainingRun  # noqa: E402
from policies.learned.training.systems import TEST_SEEDS, SetupOverrides, TrainingSetup, WorkloadSpec  # noqa: E402
from policies.learned.weights import weights  # noqa: E402
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


def trained(folder: Path, on: SimulatorBackend) -> dict[str, bytes]:
    """The best weights of a training in that folder, and their card."""
    with TrainingRun(folder, card_of(SMALL, on), resume=False, better=SYSTEM.better) as run:
        train(run, on, SMALL)
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
