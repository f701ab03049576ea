"""The loaders on the published logs; without the data these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.traces.describe import describe
from simulator.traces.formats import Options, load_log, pai
from simulator.traces.generators import generate
from simulator.traces.generators.philly import Philly
from simulator.traces.read import read_trace
from simulator.traces.write import write_trace

DATA = Path(__file__).parents[5].parent / "shared" / "data"
RAW = DATA / "raw_formats"
SPEEDS = DATA / "perf" / "gavel" / "simulation_throughputs.isolated.csv"
pytestmark = pytest.mark.skipif(not RAW.is_dir(), reason=f"no logs at {DATA}")

LOGS = {
    "helios": ("helios_original/cluster_log.csv",),
    "acme": ("acme_original/trace_seren.csv", "acme_original/trace_kalos.csv"),
    "philly": ("philly_original/cluster_job_log",),
    "openb": ("alibaba_gpu_v2023_openb/openb_pod_list_default.csv",),
    "itp": tuple(f"microsoft_itp_elasticflow/cluster{number:02d}.csv" for number in range(1, 11)),
    "gavel": ("gavel/ee9e8c.trace",),
    "pollux": tuple(f"sia_pollux_workloads/{name}/workload-1.csv" for name in ("newtrace", "philly", "saturn")),
    "tiresias": ("tiresias/60_job.csv",),
    "swf": ("swf_hpc2n_alea/hpc2n.swf",),
}
ROWS = {
    "helios": 3,
    "acme": 4,
    "philly": 2,
    "openb": 199,
    "itp": 1990,
    "gavel": 200,
    "pollux": 519,
    "tiresias": 60,
    "swf": 177,
}


@pytest.mark.parametrize("form", LOGS)
def test_every_row_is_a_job_or_counted(form: str, tmp_path: Path) -> None:
    loaded = load_log(form, [RAW / name for name in LOGS[form]], Options(speeds=SPEEDS))
    assert len(loaded.trace) + sum(loaded.skipped.values()) == ROWS[form]
    assert len(loaded.trace) > ROWS[form] * 0.8
    assert loaded.trace.submit_ns[0] == 0
    write_trace(loaded.trace, tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv").same_jobs(loaded.trace)


def test_helios_run_times_are_those_between_start_and_end() -> None:
    loaded = load_log("helios", [RAW / LOGS["helios"][0]])
    assert loaded.trace.duration_ns.tolist() == [36_848 * 10**9, 249 * 10**9, 675_233 * 10**9]


def test_a_header_of_pai_names_the_columns_that_are_read() -> None:
    for table, names in (("job", pai.JOB), ("task", pai.TASK), ("group_tag", pai.TAG)):
        header = (RAW / "alibaba_gpu_v2020_pai" / f"pai_{table}_table.header").read_text()
        assert tuple(header.strip().split(",")) == names


@pytest.mark.parametrize(("name", "jobs", "days"), [("philly_full", 111_597, 137), ("microsoft_itp2021", 69_351, 60)])
def test_whole_traces(name: str, jobs: int, days: int) -> None:
    trace = read_trace(DATA / "traces" / f"{name}.csv.gz")
    reported = describe(trace)
    assert reported.jobs == jobs
    assert reported.span_s / 86_400 == pytest.approx(days, abs=1)
    assert len(read_trace(DATA / "traces" / f"{name}.csv.gz", limit=100)) == 100


def test_the_philly_generator_matches_the_log() -> None:
    log = describe(read_trace(DATA / "traces" / "philly_full.csv.gz"))
    drawn = describe(generate("philly", Philly(jobs=200_000, seed=1)))
    assert drawn.mean_gpus == pytest.approx(log.mean_gpus, rel=0.03)
    assert drawn.duration_s["mean"] == pytest.approx(log.duration_s["mean"], rel=0.10)
    assert drawn.gpu_hours / 200_000 == pytest.approx(log.gpu_hours / log.jobs, rel=0.10)
    for percent in ("p10", "p25", "p50", "p75", "p90", "p95", "p99"):
        assert np.log(drawn.duration_s[percent]) == pytest.approx(np.log(log.duration_s[percent]), abs=0.15)
