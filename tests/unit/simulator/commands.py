"""Small runs for the tests of results, figures, reports and commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from policies.api import load_policy
from simulator.cli import main as cli
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.results.result import Result
from simulator.runs.progress import drive
from simulator.slowdown.api import SlowdownModel
from simulator.traces.trace import NS_PER_S, Trace

Row = tuple[float, int, float]
"""Submit (s), GPUs, duration (s)."""


def trace_of(rows: Sequence[Row], models: Sequence[str] | None = None) -> Trace:
    ids = [f"j{row}" for row in range(len(rows))]
    submit, gpus, duration = zip(*rows, strict=True)
    times = ([round(time * NS_PER_S) for time in column] for column in (submit, duration))
    submit_ns, duration_ns = times
    return Trace.of("small", ids, submit_ns, gpus, duration_ns, model=models)


def run(
    rows: Sequence[Row],
    cluster: str = "1x4",
    policy: str = "fifo",
    *,
    settings: Settings | None = None,
    slowdown: list[SlowdownModel] | None = None,
    models: Sequence[str] | None = None,
) -> Result:
    simulation = Simulation(
        trace_of(rows, models),
        parse_cluster(cluster),
        load_policy(policy),
        settings or Settings(preempt_cost_s=0.0, record=True),
        slowdown,
    )
    drive(simulation)
    return Result.of(simulation, policy, 0.5)


def write(path: Path, rows: Sequence[Row]) -> Path:
    lines = [f"j{at},{submit},{gpus},{duration}" for at, (submit, gpus, duration) in enumerate(rows)]
    path.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s", *lines]) + "\n")
    return path


def headway_sim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str, str]:
    """Run `headway-sim` with these words in this process. Returns its exit status, its output and its messages."""
    monkeypatch.setattr(sys, "argv", ["headway-sim", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err
