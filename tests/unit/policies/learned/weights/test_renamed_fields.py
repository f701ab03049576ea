"""Cards, checkpoints and command lines that were written before recipe fields were renamed still work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="recipes need torch")

from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.settings import check_same, read_settings, write_settings
from policies.learned.training.systems import find_system
from policies.learned.weights.card import ModelCard
from policies.learned.weights.renamed_fields import RENAMED, current_names
from policies.learned.weights.weights import pretrained

SYSTEMS = sorted(RENAMED)


def shipped(system: str) -> Iterator[str]:
    """The cards that come with Headway, which were written before the renaming."""
    for file in pretrained().iterdir():
        if file.name.endswith(".json") and json.loads(file.read_text())["system"] == system:
            yield file.read_text()


NEWER = {"contention-rl": {"network", "anneal", "validate_every"}}
"""Fields that are newer than the shipped cards; without them a card means their defaults."""


@pytest.mark.parametrize("system", SYSTEMS)
def test_cards_of_an_earlier_version_get_the_present_names(system: str) -> None:
    known = {each.name for each in fields(find_system(system).recipe)}
    texts = list(shipped(system))
    assert texts
    for text in texts:
        before: dict[str, Any] = json.loads(text)["recipe"]
        if not before.keys() & RENAMED[system].keys():
            continue  # a card of later weights
        recipe = ModelCard.from_json(text, "card").recipe
        assert known - recipe.keys() <= NEWER.get(system, set())
        for old, new in RENAMED[system].items():
            assert old in before and new not in before, "the card is one from before"
            assert recipe[new] == before[old]
        assert len(recipe) == len(before)


@pytest.mark.parametrize("system", SYSTEMS)
def test_recipes_have_the_new_field_names_and_not_the_old_ones(system: str) -> None:
    known = {each.name for each in fields(find_system(system).recipe)}
    assert set(RENAMED[system].values()) <= known
    assert not known & RENAMED[system].keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_training_of_an_earlier_version_continues(system: str, tmp_path: Path) -> None:
    text = next(shipped(system))
    path = tmp_path / "settings.json"
    write_settings(path, {"better": "lower", "patience": None, "card": json.loads(text)})
    now = {"better": "lower", "patience": None, "card": json.loads(ModelCard.from_json(text, "card").to_json())}
    assert check_same(path, read_settings(path), now) == []


def test_the_command_line_takes_old_names() -> None:
    system = find_system("contention-rl")
    assert recipe_of(system, ["lam=0.5", "clip=0.25"]) == recipe_of(system, ["gae_lambda=0.5", "clip_range=0.25"])
    assert recipe_of(system, ["lam=0.5"]).gae_lambda == 0.5


def test_another_engines_card_has_the_same_names() -> None:
    assert current_names("contention-rl-sb3", {"lam": 0.5, "gamma": 1}) == {"gae_lambda": 0.5, "gamma": 1}
    assert current_names("mine", {"lam": 0.5}) == {"lam": 0.5}
