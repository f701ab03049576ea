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
