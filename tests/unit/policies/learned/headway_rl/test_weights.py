"""Weights of headway-rl: the shipped ones belong to their card and serve; damaged and foreign ones are refused."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from policies.api import load_policy
from policies.errors import PolicyLoadError, WeightsError
from policies.learned.headway_rl.features import ENCODER, NAMES
from policies.learned.headway_rl.network import TERMS, empty
from policies.learned.headway_rl.policy import SYSTEM, HeadwayRl, load
from policies.learned.headway_rl.recipe import Recipe
from policies.learned.training.systems import find_system
from policies.learned.weights import weights
from policies.learned.weights.card import draft
from tests.unit.policies.states.cluster import Job, Node
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of

CARD = draft(
    system=SYSTEM, recipe=Recipe(), seed=0, encoder=ENCODER, shapes=("any",), data="nothing", data_sha256="0" * 64
)


def test_the_shipped_weights_are_small_and_those_of_the_recipe() -> None:
    place = weights.pretrained()
    arrays, card = weights.load(place, SYSTEM, system=SYSTEM, encoder=ENCODER, network=empty())
    assert card.recipe == CARD.recipe
    assert card.parameters == len(NAMES) + len(TERMS)
    assert sum(array.nbytes for array in arrays.values()) < 5 << 20
    assert 0 < card.results["avg_jct_s"] == card.results["validation"]


def test_the_weights_of_the_wide_preset_are_those_of_its_recipe_and_are_chosen_by_an_option() -> None:
    _, card = weights.load(weights.pretrained(), f"{SYSTEM}-wide", system=SYSTEM, encoder=ENCODER, network=empty())
    assert card.recipe == asdict(find_system(SYSTEM).presets["wide"])
    usual, wide = HeadwayRl(), HeadwayRl(values="wide")
    assert not np.array_equal(usual._network.values(np.eye(len(NAMES))), wide._network.values(np.eye(len(NAMES))))
    assert wide._trained["nodes"][1] == 100.0
    with pytest.raises(PolicyLoadError, match="learned or wide"):
        load_policy(SYSTEM, {"values": "narrow"})


def test_serving_is_deterministic() -> None:
    jobs = [(Job(gpus=gpus, estimate_s=60.0 * gpus), LOUD if gpus % 2 else QUIET) for gpus in range(3, 14)]
    state = state_of([Node()] * 4, jobs)
    decisions = [load_policy("headway-rl").decide(state) for _ in range(2)]
    assert decisions[0] == decisions[1]
    assert decisions[0].allocation


def test_weights_of_ones_own(tmp_path: Path) -> None:
    weights.save(tmp_path / "best", SYSTEM, empty(), CARD)
    HeadwayRl(weights=str(tmp_path))
    with pytest.raises(PolicyLoadError, match="no such file"):
        load_policy("headway-rl", {"weights": str(tmp_path / "other")})


@pytest.mark.parametrize("fault", ["cut", "bit", "encoder", "system", "shape", "nan"])
def test_weights_that_are_not_what_they_should_be(tmp_path: Path, fault: str) -> None:
    card, arrays = CARD, empty()
    if fault == "encoder":
        card = replace(card, encoder="headway-rl/0")
    if fault == "system":
        card = replace(card, system="contention-rl")
    if fault == "shape":
        arrays["linear"] = np.zeros(3)
    weights.save(tmp_path, SYSTEM, arrays, card)
    path = tmp_path / f"{SYSTEM}.safetensors"
    content = bytearray(path.read_bytes())
    if fault == "cut":
        del content[-5:]
    if fault in {"bit", "nan"}:
        content[-8:] = np.array([np.nan if fault == "nan" else 1.0]).tobytes()
    path.write_bytes(bytes(content))
    with pytest.raises(WeightsError, match=SYSTEM):
        load(str(tmp_path))
