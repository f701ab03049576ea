"""`headway-sim latency`: the time of each decision."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

from policies.heuristics.orders.fifo import Fifo
from simulator.cli import main as cli
from simulator.runs.latency import WARM_UP, Timed
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.commands import write

ROWS = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


@pytest.fixture
def latency(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    trace = write(tmp_path / "small.csv", ROWS)

    def call(*words: object) -> tuple[int, str, str]:
        given = ["headway-sim", "latency", "--trace", trace, "--cluster", "1x4", *words]
        monkeypatch.setattr(sys, "argv", list(map(str, given)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return call


def test_each_policy_is_timed_at_each_instant(latency) -> None:
    code, out, _ = latency("--policies", "fifo,srtf:layout=anywhere", "--json")

    assert code == 0
    found = json.loads(out)
    assert list(found) == ["fifo", "srtf:layout=anywhere"]
    # Three submissions, and the ends of the first two jobs; nothing waits after the last.
    assert found["fifo"]["decisions"] >= 4 and found["fifo"]["most_waiting"] == 2
    for each in found.values():
        assert 0 < each["cpu_median_ms"] <= each["cpu_p99_ms"] <= each["cpu_most_ms"]
        assert 0 < each["median_ms"] <= each["p99_ms"]


def test_so_many_decisions_and_a_table(latency) -> None:
    code, out, _ = latency("--policies", "fifo", "--decisions", 2)

    assert code == 0
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("fifo"))
    assert row[:2] == ["fifo", "2"]
    assert "only CPU time is meaningful" in out


def test_objects_that_the_caller_has_frozen_stay_frozen(latency) -> None:
    gc.freeze()
    latency("--policies", "fifo", "--decisions", 1)
    assert gc.get_freeze_count() > 0


def test_a_policy_that_does_not_exist_is_one_line(latency) -> None:
    code, _, err = latency("--policies", "none-such")

    assert code == 2
    assert err.startswith("headway-sim latency: ") and err.count("\n") == 1


def test_the_first_state_is_decided_before_it_counts() -> None:
    states: list[object] = []

    class Recording(Fifo):
        def decide(self, state):
            states.append(state)
            return super().decide(state)

    timed, state = Timed(Recording()), cluster([Node()], [Job(gpus=4)])
    timed.decide(state)
    timed.decide(state)
    assert len(states) == WARM_UP + 2
    assert [waiting for _, _, waiting in timed.taken] == [1, 1]
