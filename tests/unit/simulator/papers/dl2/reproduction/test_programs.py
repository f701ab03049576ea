"""The programs beside DL2's experiment: how its setting was chosen, and the time of decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.papers.dl2.reproduction import baselines_by_load, by_model, details, inference
from simulator.papers.dl2.reproduction.settings import MAIN
from simulator.papers.dl2.reproduction.stored import RUNS
from simulator.papers.dl2.rules.linear_rule import PAIRS
from simulator.papers.programs import answer
from simulator.traces.generators.dl2 import MODELS


def test_baselines_have_a_row_for_each_cluster_and_load(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clusters", "13x2", "36x2", "--gaps", "1800", "--seeds", "1"]
    assert answer(baselines_by_load.program, words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seeds"] == 1
    small, large = found["rows"]
    assert (small["cluster"], large["cluster"], large["gap_s"]) == ("13x2", "36x2", 1800.0)
    assert 0 < large["drf_utilization"] < small["drf_utilization"] <= 1


def test_a_wrong_cluster_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(baselines_by_load.program, ["--clusters", "many", "--gaps", "1800", "--seeds", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "many" in err.splitlines()[-1]


@pytest.mark.parametrize("system", ["dl2", "dl2-ppo"])
def test_the_actions_of_the_agent_are_timed_in_one_thread_as_in_a_policy_server(
    system: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="the agent needs torch")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert answer(inference.program, ["--repeat", "2", "--system", system]) == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == 40 and found["actions_of_a_slot"] > 40
    assert 0 < found["action_ms"]["median"] < found["slot_ms"]["least"] <= found["slot_ms"]["most"]


def test_the_tasks_of_a_table_are_those_that_it_has_for_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(by_model.program, ["--seeds", "2", "--agents", "dl2-fifo:workers=2", "dl2-pairs"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(each["jobs"] for each in found["models"].values()) == 60
    for model, pairs in zip(MODELS, PAIRS, strict=True):
        table = found["agents"]["dl2-pairs"][model]
        assert table["workers"] == table["servers"] == table["among_many"] == pairs
        assert table["deviation"] == table["excess_s"] == 0
    others = found["agents"]["dl2-fifo:workers=2"]
    assert all(each["workers"] == 2 for each in others.values())
    # What all models add is the difference of the average JCT of all jobs.
    means = {name: RUNS.read()[MAIN.name][name]["avg_jct_s"][:2] for name in ("dl2-fifo:workers=2", "dl2-pairs")}
    slower, faster = (sum(each) / 2 for each in means.values())
    assert sum(each["excess_s"] for each in others.values()) == pytest.approx(slower - faster, abs=1)


def test_times_of_decisions_are_stored_beside_those_of_other_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "inference.json"
    file.write_text('{"other": {"jobs": 1}}')
    monkeypatch.setattr(inference, "INFERENCE", file)
    monkeypatch.setattr(details, "INFERENCE", file)
    monkeypatch.setattr(inference, "slots", lambda _weights, _system, repeat: [[0.001, 0.003]] * repeat)
    assert answer(inference.program, ["--repeat", "3", "--store"]) == 0
    assert details.stored_inference() == {"other": {"jobs": 1}, "dl2": json.loads(capsys.readouterr().out)}
