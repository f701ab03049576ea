"""The ranges in the cards of the weights that come with Headway are those of their training data."""

from __future__ import annotations

import pytest

from policies.learned.training.systems import SetupOverrides, find_system
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard
from simulator.training.backend import simulator_backend

pytest.importorskip("torch", reason="systems need torch")


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("rl-base", "contention-rl"),
        ("sched2", "sched2"),
        ("sched2-rule", "sched2-rule"),
        ("headway-rl", "headway-rl"),
        ("rl-taps", "rl-taps"),
        ("dl2", "dl2"),
        ("dl2-ppo", "dl2-ppo"),
        ("marl", "marl"),
        ("marl-single", "marl"),
    ],
)
def test_the_card_has_the_range_of_its_data(name: str, system: str) -> None:
    path = weights.pretrained() / f"{name}.json"
    card = ModelCard.from_json(path.read_text(encoding="utf-8"), name)
    found = find_system(system)
    recipe = found.recipe()
    backend = simulator_backend(found.setup(recipe), SetupOverrides())
    if card.data_sha256 != backend.data_sha256:
        pytest.skip("the weights are of a training with another recipe")
    details = found.card(recipe, backend)
    assert card.trained_range == (details.trained_range or backend.trained_range())
