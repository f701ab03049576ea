"""The program that compares rules, and the bound that it shows."""

from __future__ import annotations

import json

import pytest

from simulator.papers.marl import rules_by_setting
from simulator.papers.marl.bound import average_jct_bound_s
from simulator.papers.marl.rules.named import BASELINES, RULES
from simulator.papers.programs import answer
from tests.unit.simulator.papers.marl.worlds import INTERVAL_S, sequence, world_of


def test_the_bound_counts_the_wait_for_an_interval() -> None:
    world = world_of(sequence((0, 1, 1500), (200, 4, 300), servers=[1, 3]))
    assert average_jct_bound_s(world.jobs, INTERVAL_S) == pytest.approx((1500 + 800 + 300) / 2)


def test_all_rules_are_above_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--k", "4", "--arrivals", "uniform", "poisson", "--seeds", "2", "--jobs", "15"]
    assert answer(rules_by_setting.program, arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["arrivals"] for each in found["settings"]] == ["uniform", "poisson"]
    for setting in found["settings"]:
        assert set(setting["rules"]) == set(RULES)
        for figures in setting["rules"].values():
            assert figures["avg_jct_s"] >= setting["bound"]
            assert figures["against"] in BASELINES
    again = rules_by_setting.program(arguments)
    names = ("avg_jct_s", "change", "put_off")
    for one, other in zip(found["settings"], again["settings"], strict=True):
        for rule in RULES:
            assert [one["rules"][rule][name] for name in names] == [other["rules"][rule][name] for name in names]


def test_numbers_of_schedulers_have_the_same_jobs() -> None:
    few = ["--k", "4", "--seeds", "2", "--jobs", "15", "--rules", "tetris", "contention-greedy"]
    one, two, four = rules_by_setting.program([*few, "--schedulers", "1", "2", "4"])["settings"]
    assert one["bound"] == two["bound"] == four["bound"]
    (single,) = rules_by_setting.program([*few, "--single"])["settings"]
    (partitions,) = rules_by_setting.program(few)["settings"]
    for rule, figures in single["rules"].items():
        assert one["rules"][rule]["avg_jct_s"] == figures["avg_jct_s"]
        assert four["rules"][rule]["avg_jct_s"] == partitions["rules"][rule]["avg_jct_s"]


def test_an_impossible_size_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(rules_by_setting.program, ["--k", "5"]) == 2
    assert "even number" in capsys.readouterr().err
