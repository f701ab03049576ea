"""The fits of table III on the pairs of a file of profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.papers.marl.interference_fit.models import CONSTANT, MODELS
from simulator.papers.marl.interference_fit.pairs import program, rows_of
from simulator.slowdown.profiles.files import save_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles


def test_a_pair_has_the_cores_and_pcie_of_the_gpus_on_one_node() -> None:
    models = {"a": ModelProfile(1.0, 1e9, cpu=6.0, pcie=0.1), "b": ModelProfile(1.0, 1e9, cpu=4.0, pcie=0.3)}
    profiles = replace(paper_profiles("marl"), models=models, pairs={("a,4,2", "b"): 0.8, ("b", "a,3,2"): 1.0})
    first, second = rows_of(ModelProfiles(profiles.models, profiles.pairs, profiles.interference))
    assert (first.own_cpu, first.own_pcie, first.others_cpu, first.others_pcie) == pytest.approx((12.0, 0.2, 4.0, 0.3))
    assert first.slowdown == pytest.approx(0.25) and second.slowdown == 0.0
    assert second.others_cpu == 12.0, "the most loaded node has two of its three GPUs"


def test_the_program_has_all_fits(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    save_profiles(paper_profiles("contention-rl"), path)
    found = program([str(path)])
    assert found["pairs"] == 36 and set(found["fits"]) == set(MODELS)
    assert found["fits"][CONSTANT]["time_error"]["mean"] > 0.0
