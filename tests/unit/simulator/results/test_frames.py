"""Results as DataFrames, and the example notebook."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from simulator.engine.settings import NodeChange, Settings
from simulator.errors import SettingError
from simulator.results.files import job_lines
from simulator.results.frames import figures_frame, jobs_frame, series_frame
from simulator.results.metrics import summary
from simulator.runs.one import result_of
from simulator.runs.options import RunOptions
from tests.unit.simulator.commands import run, write

ROWS = [(0.0, 2, 10.0), (0.5, 12, 3.25), (1.0, 1, 2.0)]
NOTEBOOK = Path(__file__).parents[4] / "examples" / "notebook" / "results.ipynb"


def test_jobs_have_the_figures_of_jobs_csv() -> None:
    result = run(ROWS, "2x8", "fifo")
    frame = jobs_frame(result)

    header, *lines = (line.split(",") for line in job_lines(result))
    for line in lines:
        exact = dict(zip(header, line, strict=True))
        row = frame.loc[exact["job_id"]]
        for name in ("submit_time_s", "first_start_s", "finish_time_s", "jct_s", "service_s"):
            assert row[name] == float(exact[name])
        assert (row["num_gpus"], row["preemptions"], row["nodes"]) == (
            int(exact["num_gpus"]), int(exact["preemptions"]), exact["nodes"],
        )  # fmt: skip


def test_a_job_that_never_finishes_has_no_times() -> None:
    changes = (NodeChange(4.0, 0, "down"),)
    result = run([(0.0, 1, 10.0), (5.0, 1, 2.0)], "1x1", settings=Settings(preempt_cost_s=0.0, changes=changes))
    frame = jobs_frame(result)

    assert frame["finish_time_s"].isna().all()
    assert math.isnan(frame.loc["j1", "first_start_s"])


def test_the_state_over_time(tmp_path: Path) -> None:
    options = RunOptions(trace=write(tmp_path / "small.csv", ROWS), cluster="2x8")
    frame = series_frame(result_of(options, "fifo", record=True))

    assert frame.index.is_monotonic_increasing
    assert (frame["busy_gpus"] + frame["free_gpus"] == 16).all()
    assert frame["running_jobs"].max() == 3
    with pytest.raises(SettingError, match="record=True"):
        series_frame(result_of(options, "fifo"))


def test_figures_of_several_policies(tmp_path: Path) -> None:
    options = RunOptions(trace=write(tmp_path / "small.csv", ROWS), cluster="1x8", drop_impossible=True)
    figures = {policy: summary(result_of(options, policy)) for policy in ("fifo", "srtf")}
    frame = figures_frame(figures)

    assert list(frame.index) == ["fifo", "srtf"]
    assert frame.loc["srtf", "avg_jct_s"] == figures["srtf"]["avg_jct_s"]
    assert math.isnan(frame.loc["fifo", "fragmentation"]), "what was not measured is no number"


def test_the_example_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "philly.csv", [(60.0 * k, 1 + k % 8, 3000.0) for k in range(60)])
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)

    figures, by_size = names["figures"], names["by_size"]
    assert isinstance(figures, pd.DataFrame) and isinstance(by_size, pd.DataFrame)
    assert (figures["finished"] == 60).all()
    assert list(by_size.index) == list(range(1, 9))
    assert by_size.loc[1, "srtf"] <= by_size.loc[8, "srtf"]
