"""The experiment of headway-rl: its settings, its contenders, and that its claims are about them."""

from __future__ import annotations

from dataclasses import replace

from simulator.papers.headway_rl.claims import GAINS
from simulator.papers.headway_rl.contenders import CONTROLS, GREEDY, HEADWAY, VARIANTS
from simulator.papers.headway_rl.experiment import ALL_DEMANDS, at_once, experiment, pictures, poisson
from simulator.reproducing.experiment import perform


def test_each_setting_has_headway_rl_its_variants_and_all_controls() -> None:
    whole = experiment()
    names = {setting.name for setting in whole.settings}
    assert names == {*GAINS, "powers", "small-at-once", "four-normal"}
    for name in names:
        assert [each.name for each in whole.contenders[name]] == [HEADWAY, *VARIANTS, GREEDY, *CONTROLS]
        claims = [claim for claim in whole.claims if claim.setting == name]
        assert {claim.goal for claim in claims if claim.ours == GREEDY and claim.metric == "avg_jct_s"} == {
            GAINS.get(name, 0.0)
        }
    assert len({claim.name for claim in whole.claims}) == len(whole.claims)
    there = {(setting.name, each.name) for setting in whole.settings for each in whole.contenders[setting.name]}
    assert all({(claim.setting, name) for name in (claim.ours, *claim.against)} <= there for claim in whole.claims)


def test_traces_are_those_of_the_seed_and_have_the_demands_of_the_setting() -> None:
    settings = {setting.name: setting for setting in experiment().settings}
    assert set(settings["powers"].trace(1000).num_gpus.tolist()) <= {1, 2, 4, 8, 16, 32}
    small = settings["small-at-once"].trace(1000)
    assert set(small.num_gpus.tolist()) == {2, 4, 8} and set(small.submit_ns.tolist()) == {0}
    assert max(settings["two-normal"].trace(1000).num_gpus.tolist()) <= 32
    assert at_once(1000).submit_ns.tolist() == small.submit_ns.tolist()
    assert settings["one-normal"].trace(1000).num_gpus.tolist() != settings["one-normal"].trace(1001).num_gpus.tolist()


def test_a_small_run_has_a_row_for_each_and_pictures_of_each_setting() -> None:
    quick = experiment(quick=True).only("one-normal")
    (setting,) = quick.settings
    small = replace(setting, trace=lambda seed: poisson(1, "normal", ALL_DEMANDS, seed, jobs=12))
    results = perform(replace(quick, settings=(small,)), range(1000, 1002), lambda _share: None)
    assert {row["policy"] for row in results.rows()} == {each.name for each in quick.contenders["one-normal"]}
    assert len(results.findings()) == len(quick.claims) == 14
    assert len(pictures(results)) == 1
