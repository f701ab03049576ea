"""Models by name, profiles in files, and rows to fit from."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.cluster.topology import flat
from simulator.errors import SlowdownError
from simulator.slowdown.api import Resident
from simulator.slowdown.compose import Composite
from simulator.slowdown.max_min import MaxMin
from simulator.slowdown.papers import CONTENTION_RL, PAPERS, paper_profiles
from simulator.slowdown.profiles import Profile, Profiles, key_of, median_profile
from simulator.slowdown.registry import MODELS, build
from simulator.slowdown.rows import read_rows
from simulator.slowdown.store import load_profiles, save_profiles
from simulator.slowdown.waterfill import max_min

TOPOLOGY = flat([8] * 4, [2] * 4)
PROFILES = paper_profiles()


def built(*texts: str) -> list[object]:
    return list(build(texts, topology=TOPOLOGY, profiles=PROFILES))


def test_names_make_models() -> None:
    assert built("none") == []
    assert built() == []
    assert len(built(*MODELS)) == len(MODELS) == 8


def speed_of_spread(*texts: str) -> float:
    model = Composite(build(texts, topology=TOPOLOGY, profiles=PROFILES))
    model.enter(Resident(0, "vgg16", -1, 2, (0, 1), (1, 1)))
    return model.speed(0)


def test_beside_locality_the_network_counts_sharing_alone() -> None:
    locality = speed_of_spread("locality")
    assert speed_of_spread("max-min") < 1
    assert speed_of_spread("locality", "max-min") == locality
    assert speed_of_spread("locality", "max-min:reference=best") == locality * speed_of_spread("max-min")


def test_the_profile_of_unknown_models_can_be_chosen() -> None:
    model = Composite(build(["locality:default=VGG16"], topology=TOPOLOGY, profiles=PROFILES))
    model.enter(Resident(0, "", -1, 2, (0, 1), (1, 1)))
    assert model.speed(0) == speed_of_spread("locality")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("nonsense",), "no slowdown model 'nonsense'; take none, or some of interference, link-sharing"),
        (("none", "locality"), "none stands beside"),
        (("locality", "locality"), "given twice"),
        (("max-min:speed=3",), "no option 'speed=3'; take some of default, reference, sharing"),
        (("max-min:reference",), "no option 'reference'"),
        (("max-min:reference=worst",), "'worst' is nothing for reference .*; give best or alone"),
        (("interference:cores=-1",), "'-1' is nothing for cores .*; give a number above 0"),
        (("interference:cores=nan",), "'nan'"),
        (("pair-table:single=maybe",), "yes or no"),
        (("locality:default=nobody",), "no profile is called 'nobody'"),
        (("none:a=b",), "no slowdown model 'none'"),
    ],
)
def test_what_there_is_not_is_told(texts: tuple[str, ...], says: str) -> None:
    with pytest.raises(SlowdownError, match=says):
        built(*texts)


def test_no_models_means_full_speed() -> None:
    model = Composite([])
    model.enter(Resident(3, "", -1, 2, (0,), (2,)))
    assert model.speed(3) == 1.0
    assert list(model.fork().changed()) == []


def test_composites_multiply_and_their_forks_go_their_own_way() -> None:
    model = Composite(build(["locality", "max-min", "interference"], topology=TOPOLOGY, profiles=PROFILES))
    for job in range(2):
        model.enter(Resident(job, "vgg16", -1, 4, (0, 1), (2, 2)))
    assert list(model.changed()) == [0, 1]
    product = 1.0
    for part in model.models:
        product *= part.factor(0)
    assert model.speed(0) == product == model.factor(0)
    twin = model.fork()
    twin.leave(1)
    assert twin.speed(0) > model.speed(0) == product


# profiles


def test_every_papers_models_have_profiles() -> None:
    for paper, models in PAPERS.items():
        profiles = paper_profiles(paper)
        for name in models:
            assert profiles.of(name).compute_s > 0
    assert len(PAPERS["rl-taps"]) == 35
    assert PROFILES.of("VGG-16") == PROFILES.of("vgg_16") == PAPERS["sched2"]["vgg16"]
    assert key_of("Transformer-XL,8,2") == "transformerxl,8,2"


def test_bandwidths_of_contention_rl_are_met_by_its_profiles() -> None:
    for name, mean in (("FSDP", 2672.4e6), ("MoE", 929.48e6), ("GraphSage", 24.63e6)):
        profile = CONTENTION_RL[name]
        sent = 1.5 * profile.bytes
        assert sent / profile.step_s(sent / 5e9) == pytest.approx(mean)


def test_unknown_models_are_the_median() -> None:
    one, two, three = Profile(1.0, 9.0), Profile(2.0, 5.0, locality=(1.0, 0.9, 0.8, 0.7)), Profile(6.0, 7.0)
    middle = median_profile([one, two, three])
    assert (middle.compute_s, middle.bytes, middle.locality) == (2.0, 7.0, (1.0, 0.9, 0.8, 0.7))
    profiles = Profiles({"a": one, "b": two, "c": three}, {}, PROFILES.interference)
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
    assert profiles.of("whatever") == Profile(2.0, 1e9, locality=(1.0, 1.0, 0.5, 0.4))
    assert profiles.pairs == {("mine", "mine"): 0.5}
    assert profiles.ring.per_rack == 0.5


GOOD = {"format": 1, "models": {"m": {"compute_s": 1, "bytes": 1}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "format is 2"),
        ({"models": {}}, "models is empty"),
        ({"models": 3}, "models is no table"),
        ({"models": {"m": {"bytes": 1}}}, "models.m.compute_s is missing"),
        ({"models": {"m": {"compute_s": 0, "bytes": 1}}}, "above 0"),
        ({"models": {"m": {"compute_s": 1, "bytes": -1}}}, "below 0"),
        ({"models": {"m": {"compute_s": 1, "bytes": "x"}}}, "give a number"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "overlap": 2}}}, "from 0 to 1"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "hiding": 2}}}, "from 0 to 1"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "locality": [1, 2]}}}, "give 4 numbers"),
        ({"models": {"m": {"compute_s": 1, "bytes": 1, "colour": 2}}}, "models.m.colour is no key"),
        ({"pairs": [["a", 2, 3]]}, r"pairs\[0\]"),
        ({"pairs": [["a", "b", 0]]}, "above 0"),
        ({"default": "other"}, "no profile is called"),
        ({"more": 1}, "'more' is no key"),
    ],
)
def test_wrong_profiles_are_told(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(SlowdownError, match=says) as raised:
        load_profiles(path)
    assert raised.value.path == path


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(SlowdownError, match="cannot be read"):
        load_profiles(tmp_path / "none.json")
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(SlowdownError, match="no JSON"):
        load_profiles(tmp_path / "p.json")


# rows


@dataclass(frozen=True)
class Measured:
    model: str
    gpus: int
    speed: float


def test_rows_from_csv_gz_and_parquet(tmp_path: Path) -> None:
    text = "name,gpus,more,speed\na,1,x,2.5\nb,2,y,3\n"
    (tmp_path / "r.csv").write_text(text)
    with gzip.open(tmp_path / "r.csv.gz", "wt") as file:
        file.write(text)
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table({"name": ["a", "b"], "gpus": [1, 2], "speed": [2.5, 3.0]}), tmp_path / "r.parquet"
    )
    for name in ("r.csv", "r.csv.gz", "r.parquet"):
        rows = read_rows(tmp_path / name, Measured, {"model": "name"})
        assert rows == [Measured("a", 1, 2.5), Measured("b", 2, 3.0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,gpus\na,1\n", "no column speed"),
        ("model,gpus,speed\na,1.5,2\n", "line 2, column gpus: '1.5'"),
        ("model,gpus,speed\na,1,2\nb,2,nan\n", "line 3, column speed: 'nan'"),
        ("model,gpus,speed\na,1\n", "no column speed"),
    ],
)
def test_wrong_rows_are_told(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(SlowdownError, match=says):
        read_rows(tmp_path / "r.csv", Measured)


def test_files_without_rows_are_told(tmp_path: Path) -> None:
    with pytest.raises(SlowdownError, match="cannot be read"):
        read_rows(tmp_path / "none.csv", Measured)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(b"model,gpus,speed\n" + b"a,1,2\n" * 999)[:-12])
    with pytest.raises(SlowdownError, match="cannot be read"):
        read_rows(tmp_path / "r.csv.gz", Measured)


# max-min rates


@pytest.mark.parametrize("seed", range(30))
def test_every_flow_is_held_by_its_limit_or_by_a_full_link_on_which_nobody_has_more(seed: int) -> None:
    rng = random.Random(seed)
    capacity = {link: rng.choice((1.0, 2.0, rng.uniform(0.5, 5))) for link in range(6)}
    uses = {
        flow: {link: rng.choice((1.0, 0.5, 2.0)) for link in rng.sample(range(6), rng.randint(0, 3))}
        for flow in range(rng.randint(1, 9))
    }
    limits = {flow: rng.choice((1.0, 3.0, rng.uniform(0.1, 4))) for flow in uses}
    rates = max_min(uses, capacity, limits)
    load = {link: sum(links.get(link, 0) * rates[flow] for flow, links in uses.items()) for link in capacity}
    assert all(load[link] <= capacity[link] + 1e-9 for link in capacity)
    for flow, links in uses.items():
        assert rates[flow] <= limits[flow] + 1e-12
        held = rates[flow] >= limits[flow] - 1e-9 or any(
            load[link] >= capacity[link] - 1e-9
            and all(rates[flow] >= rates[other] - 1e-9 for other in uses if link in uses[other])
            for link in links
        )
        assert held


def test_only_the_component_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MaxMin(flat([8] * 40, [2] * 40), PROFILES)
    settled: list[list[int]] = []
    real = MaxMin._settle
    monkeypatch.setattr(
        MaxMin, "_settle", lambda self, component: (settled.append(component), real(self, component))[1]
    )
    for job in range(12):
        model.enter(Resident(job, "vgg16", -1, 12, (3 * job, 3 * job + 1), (8, 4)))
    list(model.changed())
    settled.clear()
    model.enter(Resident(50, "vgg16", -1, 8, (1, 4), (4, 4)))
    list(model.changed())
    assert settled == [[0, 1, 50]]
    settled.clear()
    model.leave(7)
    assert list(model.changed()) == []
    assert settled == []
