"""`headway-sim act`: agents and policies in one environment."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from simulator.cli.app import app

WORDS = [
    *("act", "fifo", "fewest-gpus", "uniform", "--env", "headway/Contention-v0", "--seeds", "3"),
    *("--workload", "contention-rl:jobs=8,demands=2/4"),
]


def test_the_command_prints_a_table() -> None:
    answer = CliRunner().invoke(app, WORDS)
    assert answer.exit_code == 0, answer.output
    assert "JCT against fifo" in answer.output
    assert "±" in answer.output


def test_the_command_prints_json() -> None:
    answer = CliRunner().invoke(app, [*WORDS, "--json"])
    found = json.loads(answer.stdout)
    assert [agent["agent"] for agent in found["agents"]] == ["fifo", "fewest-gpus", "uniform"]
    assert found["seeds"] == [1000, 1001, 1002]
    assert found["agents"][0]["avg_jct_s"]["ci95"] > 0
    assert found["agents"][0]["change"] is None


def test_the_command_refuses_an_unknown_environment_in_one_line() -> None:
    answer = CliRunner().invoke(app, ["act", "fifo", "--env", "headway/Nothing-v0"])
    assert answer.exit_code == 2
    assert answer.stderr.startswith("headway-sim act: environment 'headway/Nothing-v0' cannot be made")
    assert len(answer.stderr.splitlines()) == 1


def test_the_command_lists_the_agents_that_act_by_a_rule() -> None:
    answer = CliRunner().invoke(app, ["act", "--list", "--json"])
    found = {row["agent"]: row for row in json.loads(answer.stdout)}
    assert found["uniform"]["env"] == ""
    assert found["dl2-drf"]["env"] == "headway/ElasticAllocation-v0"
    assert found["dl2-greedy"]["rule"].startswith("Greedy oracle: ")
    elsewhere = CliRunner().invoke(app, ["act", "--list", "--env", "headway/Contention-v0"])
    assert "uniform" in elsewhere.output and "dl2-drf" not in elsewhere.output


def test_the_command_runs_baselines_by_name() -> None:
    words = [
        "act",
        "dl2-drf",
        "dl2-srtf:workers=4",
        "drf:elastic=true",
        "uniform",
        "--env",
        "headway/ElasticAllocation-v0",
    ]
    answer = CliRunner().invoke(app, [*words, "--workload", "dl2:jobs=8", "--seeds", "2", "--json"])
    assert answer.exit_code == 0, answer.output
    found = {agent["agent"]: agent for agent in json.loads(answer.stdout)["agents"]}
    assert list(found) == ["dl2-drf", "dl2-srtf:workers=4", "drf:elastic=true", "uniform"]
    assert found["dl2-drf"]["deviations"]["mean"] == 0


def test_the_command_asks_for_an_agent() -> None:
    answer = CliRunner().invoke(app, ["act", "--env", "headway/Contention-v0"])
    assert answer.exit_code == 2
    assert "no agent is given; give one or more" in answer.stderr


def test_slowdowns_are_compared_where_the_environment_has_them() -> None:
    words = ["act", "taps-sjf", "taps-greedy", "--env", "headway/RlTaps-v0", "--workload", "rl-taps:jobs=12"]
    # At Tmax nothing is known of the JCTs, but slowdowns are defined.
    words += ["--set", "max_steps=20", "--seeds", "3"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "slowdown against taps-sjf" in answer.output
    assert "JCT" not in answer.output
    sjf, greedy = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["agents"]
    assert (sjf["slowdown_change"], sjf["avg_jct_s"]) == (None, None)
    assert greedy["slowdown_change"]["mean"] < 0
    assert greedy["mean_slowdown"]["mean"] < sjf["mean_slowdown"]["mean"]
