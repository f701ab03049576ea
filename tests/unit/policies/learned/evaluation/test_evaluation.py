"""Evaluation of runs: means over seeds, changes in pairs, and no figures where jobs were left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from policies.api import Policy
from policies.learned.evaluation import evaluation
from policies.learned.evaluation.evaluation import METRICS, EvaluationRequest, as_json, evaluate
from policies.learned.training.systems import Comparison, OnProgress, SetupOverrides

JCTS = {"fifo": [100.0, 1000.0, 120.0, 1400.0], "sjf": [90.0, 900.0, 96.0, 1120.0]}


class Backend:
    """Two seeds of two workloads that have been run."""

    data, notes = "two workloads", ()
    closed = False

    def __init__(self, finished: int) -> None:
        self.finished = finished

    def compare(self, policies: Mapping[str, Policy], seeds: int | None, tell: OnProgress) -> Comparison:
        assert seeds == 2
        figures = {
            name: [
                {**dict.fromkeys(METRICS, 1.0), "avg_jct_s": jct, "jobs": 10, "finished": self.finished}
                for jct in JCTS[name]
            ]
            for name in policies
        }
        return Comparison(("a", "b", "c", "d"), figures, per_seed=2)

    def close(self) -> None:
        self.closed = True


def answered(monkeypatch: pytest.MonkeyPatch, finished: int = 10) -> Any:
    backend = Backend(finished)
    monkeypatch.setattr(evaluation, "find_backend", lambda setup, overrides: backend)
    request = EvaluationRequest(
        policies=("fifo", "sjf"), overrides=SetupOverrides(traces=("x",), cluster="1x1"), seeds=2
    )
    answer = evaluate(request, lambda share: None)
    assert backend.closed
    return answer


def test_workloads_of_one_seed_are_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answered(monkeypatch)
    mean = answer.figures["fifo"]["avg_jct_s"]
    assert mean.mean == pytest.approx((550 + 760) / 2)
    # Two seeds: t is 12.706, the deviation of 550 and 760 is 148.49.
    assert mean.ci95 == pytest.approx(12.706 * 148.49 / 2**0.5, rel=1e-4)
    assert answer.seeds == 2


def test_changes_are_those_of_each_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answered(monkeypatch).changes
    assert list(found) == ["sjf"]
    assert found["sjf"].mean == pytest.approx(-0.15)
    assert found["sjf"].ci95 == pytest.approx(12.706 * 0.1 / 2, rel=1e-3)


def test_a_policy_that_leaves_jobs_unfinished_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answered(monkeypatch, finished=9)
    assert answer.unfinished == {"fifo": 4, "sjf": 4}
    assert all(mean is None for figures in answer.figures.values() for mean in figures.values())
    rows: Any = as_json(answer)["policies"]
    assert rows[0]["avg_jct_s"] is None
    assert rows[1]["change"] is None
