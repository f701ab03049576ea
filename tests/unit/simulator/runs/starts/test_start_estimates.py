"""`headway-sim start-estimates`: estimates on a trace, and what came of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulator.runs.starts.accuracy import accuracy
from simulator.runs.starts.limits import CHOICES_S, with_limits
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.commands import headway_sim, trace_of, write


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    rng = np.random.default_rng(5)
    submit = np.cumsum(rng.exponential(95.0, 400))
    rows = [(float(at), int(rng.choice([1, 2, 4])), float(rng.lognormal(5.0, 0.8))) for at in submit]
    trace = write(tmp_path / "small.csv", rows)

    def call(*words: object) -> tuple[int, str, str]:
        return headway_sim(
            monkeypatch, capsys, "start-estimates", "--trace", trace, "--cluster", "1x4", "--slowdown", "none", *words
        )

    return call


def test_estimates_from_the_queue_are_better_than_past_waits(command) -> None:
    code, out, _ = command("--policy", "fifo", "--every", 3, "--samples", 6, "--json")

    assert code == 0
    found = json.loads(out)
    assert found["estimates"] > 30
    assert found["gain_over_by_size"] > 0.3 and found["gain_over_by_limits"] > 0.3
    assert 0.65 <= found["shown"]["coverage"] <= 0.95
    assert found["shown"]["below"] + found["shown"]["above"] == pytest.approx(1 - found["shown"]["coverage"])


def test_a_table_for_people(command) -> None:
    code, out, _ = command("--policy", "backfill", "--every", 20, "--samples", 3)

    assert code == 0
    assert "plan by time limits" in out and "in the 80 % range" in out


def test_where_no_job_waits_the_command_says_so(command) -> None:
    code, _, err = command("--policy", "fifo", "--cluster", "100x4")

    assert code == 2
    assert "no job of the held-back part had to wait" in err


def test_limits_are_choices_of_users_above_the_run_time() -> None:
    trace = trace_of([(0.0, 1, 100.0), (1.0, 1, 5000.0), (2.0, 1, 1e8)])
    limits_s = with_limits(trace, 0).limit_ns // NS_PER_S

    assert limits_s[0] in CHOICES_S and limits_s[1] in CHOICES_S
    assert (limits_s >= [100, 5000, 1e8]).all() and limits_s[0] <= 3600


def test_the_loss_of_a_point_is_its_distance() -> None:
    found = accuracy(np.array([[10.0, 10.0, 10.0]]), np.array([10.0 + 6.0]))

    assert found.pinball_s == pytest.approx(6.0 * (0.1 + 0.5 + 0.9) / 3)
    assert (found.coverage, found.above, found.width_s) == (0.0, 1.0, 0.0)
