"""Profiles of the papers' models, and profiles in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import SlowdownError
from simulator.slowdown.profiles.files import load_profiles, save_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles, key_of, median_profile
from simulator.slowdown.profiles.papers import CONTENTION_RL, PAPERS, paper_profiles

PROFILES = paper_profiles()


def test_every_papers_models_have_profiles() -> None:
    for paper, models in PAPERS.items():
        profiles = paper_profiles(paper)
        for name in models:
            assert profiles.of(name).compute_s > 0
    assert len(PAPERS["rl-taps"]) == 35
    assert PROFILES.of("VGG-16") == PROFILES.of("vgg_16") == PAPERS["sched2"]["vgg16"]
    assert key_of("Transformer-XL,8,2") == "transformerxl,8,2"


def test_measured_coefficients_must_be_named() -> None:
    assert paper_profiles("dl2-measured").of("vgg-16").servers is not None
    assert paper_profiles("dl2").of("vgg-16").servers is None
    assert all(profile.servers is None for profile in PROFILES.models.values())


def test_bandwidths_of_contention_rl_are_met_by_its_profiles() -> None:
    for name, mean in (("FSDP", 2672.4e6), ("MoE", 929.48e6), ("GraphSage", 24.63e6)):
        profile = CONTENTION_RL[name]
        sent = 1.5 * profile.bytes
        assert sent / profile.step_s(sent / 5e9) == pytest.approx(mean)


def test_unknown_models_are_the_median() -> None:
    one, two, three = (
        ModelProfile(1.0, 9.0),
        ModelProfile(2.0, 5.0, locality=(1.0, 0.9, 0.8, 0.7)),
        ModelProfile(6.0, 7.0),
    )
    middle = median_profile([one, two, three])
    assert (middle.compute_s, middle.bytes, middle.locality) == (2.0, 7.0, (1.0, 0.9, 0.8, 0.7))
    profiles = ModelProfiles({"a": one, "b": two, "c": three}, {}, PROFILES.interference)
    assert profiles.of("") == profiles.of("nobody") == middle
    with pytest.raises(SlowdownError, match="no profiles"):
        median_profile([])


@pytest.mark.parametrize("papers", [(), ("sched2",), ("contention-rl", "marl")])
def test_profiles_come_back_from_files(tmp_path: Path, papers: tuple[str, ...]) -> None:
    profiles = paper_profiles(*papers)
    save_profiles(profiles, tmp_path / "p.json")
    assert load_profiles(tmp_path / "p.json") == profiles


def test_profiles_from_toml(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        'format = 1\ndefault = "Mine"\npairs = [["mine", "mine", 0.5]]\n'
        "[models.mine]\ncompute_s = 2\nbytes = 1e9\nlocality = [1, 1, 0.5, 0.4]\n[ring]\nper_rack = 0.5\n"
    )
    profiles = load_profiles(tmp_path / "p.toml")
    assert profiles.of("whatever") == ModelProfile(2.0, 1e9, locality=(1.0, 1.0, 0.5, 0.4))
    assert profiles.pairs == {("mine", "mine"): 0.5}
    assert profiles.ring.per_rack == 0.5


GOOD = {"format": 1, "models": {"m": {"compute_s": 1, "bytes": 1}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "format is 2"),
        ({"models": {}}, "models is empty"),
        ({"models": 3}, "models is not a table"),
        ({"models": {"m": {"bytes": 1}}}, "models.m.compute_s is missing"),
        ({"models": {"m": {"compute_s": 0, "bytes": 1}}}, "above 0"),
        ({"models": {"m": {"compute_s": 1, "bytes": -1}}}, "below 0"),
        ({"models": {"m": {"compute_s": 1, "bytes": "x"}}}, "give a number"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "overlap": 2}}}, "from 0 to 1"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "hiding": 2}}}, "from 0 to 1"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "locality": [1, 2]}}}, "give 4 numbers"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "colour": 2}}}, "models.m.colour is not a key"),
        ({"pairs": [["a", 2, 3]]}, r"pairs\[0\]"),
        ({"pairs": [["a", "b", 0]]}, "above 0"),
        ({"default": "other"}, "no profile is called"),
        ({"more": 1}, "'more' is not a key"),
    ],
)
def test_wrong_profiles_are_reported(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(SlowdownError, match=says) as raised:
        load_profiles(path)
    assert raised.value.path == path


def test_invalid_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SlowdownError, match="cannot be read"):
        load_profiles(tmp_path / "none.json")
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(SlowdownError, match="is not valid JSON"):
        load_profiles(tmp_path / "p.json")
