"""Results and the files that they are written to."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from policies.api import load_policy
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.results.files import busy_gpus, job_lines, prepare_folder, write_results
from simulator.results.metrics import summary
from simulator.results.result import Result
from simulator.runs.progress import drive
from tests.unit.simulator.commands import run, trace_of

ROWS = [(0.0, 2, 10.0), (0.5, 12, 3.25), (1.0, 1, 2.000000001)]


def test_jobs_csv_is_exact() -> None:
    result = run(ROWS, "2x8", "fifo")

    assert list(job_lines(result)) == [
        "job_id,submit_time_s,first_start_s,finish_time_s,num_gpus,jct_s,service_s,preemptions,nodes",
        "j0,0,0,10,2,10,10,0,0:2",
        "j1,0.5,0.5,3.75,12,3.25,3.25,0,0:4+1:8",
        "j2,1,1,3.000000001,1,2.000000001,2.000000001,0,0:1",
    ]


def test_ids_with_commas_are_quoted() -> None:
    simulation = Simulation(trace_of([(0.0, 1, 1.0)]), parse_cluster("1x1"), load_policy("fifo"))
    drive(simulation)
    result = Result.of(simulation, "fifo", 1.0)
    object.__setattr__(result, "job_ids", ('a,"b"',))

    assert next(csv.reader(list(job_lines(result))[1:]))[0] == 'a,"b"'


def test_jobs_that_never_finish_have_no_times() -> None:
    changes = (NodeChange(4.0, 0, "down"),)
    result = run([(0.0, 1, 10.0), (0.0, 1, 2.0)], "1x1", settings=Settings(preempt_cost_s=0.0, changes=changes))

    assert result.done.tolist() == [False, False]
    first, second = list(job_lines(result))[1:]
    assert first == "j0,0,0,,1,,4,0,"
    assert second == "j1,0,,,1,,0,0,"


def test_a_fork_has_what_finished_before_it() -> None:
    rows = [(float(at), 1 + at % 3, 5.0 + at) for at in range(30)]
    straight = run(rows, "1x4", "srtf")
    simulation = Simulation(trace_of(rows), parse_cluster("1x4"), load_policy("srtf"), Settings(preempt_cost_s=0.0))
    simulation.run(until_s=40)
    twin = simulation.fork()
    twin.run(until_s=60)
    twin = twin.fork()
    drive(twin)

    assert list(job_lines(Result.of(twin, "srtf", 1.0))) == list(job_lines(straight))


def test_the_series_shows_occupied_gpus_and_waiting_jobs() -> None:
    result = run([(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)])
    assert result.series is not None

    assert (result.series.time // 10**9).tolist() == [0, 2, 4, 10, 15, 30]
    assert busy_gpus(result, result.series).tolist() == [4, 4, 4, 4, 2, 0]
    assert result.series.waiting.tolist() == [0, 1, 2, 0, 0, 0]


def test_gpus_of_a_dead_node_are_not_busy() -> None:
    changes = (NodeChange(3.0, 1, "down"), NodeChange(5.0, 1, "up"))
    result = run([(0.0, 4, 10.0)], "2x4", settings=Settings(preempt_cost_s=0.0, changes=changes, record=True))
    assert result.series is not None

    assert busy_gpus(result, result.series).tolist() == [4, 4, 4, 0]


def test_files_of_a_run(tmp_path: Path) -> None:
    result = run(ROWS, "2x8", "fifo")
    folder = tmp_path / "new" / "folder"
    prepare_folder(folder)
    write_results(result, summary(result), folder)

    assert sorted(path.name for path in folder.iterdir()) == ["jobs.csv", "series.csv", "summary.json"]
    facts = json.loads((folder / "summary.json").read_text())
    assert facts["summary"]["jobs"] == 3
    with (folder / "series.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert next(row["busy_gpus"] for row in rows) == "2"


def test_an_unusable_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SettingError, match=r"--out .*file.*nothing can be written there.*give a folder"):
        prepare_folder(tmp_path / "file")


def test_columns_are_in_the_order_of_the_trace() -> None:
    random = np.random.default_rng(1)
    rows = [(float(at), int(random.integers(1, 5)), float(random.integers(1, 60))) for at in range(200)]
    result = run(rows, "3x4", "sjf")

    assert result.done.all()
    assert (result.first_start_ns >= result.submit_ns).all()
    assert (result.finish_ns - result.first_start_ns == result.duration_ns).all()
    occupied = [sum(int(part.split(":")[1]) for part in text.split("+")) for text in result.nodes()]
    assert occupied == result.num_gpus.tolist()
