"""Reading a written trace gives an equal trace."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from simulator.errors import TraceError
from simulator.traces.read import read_trace
from simulator.traces.trace import Trace
from simulator.traces.write import seconds_text, write_trace, write_trace_to
from tests.unit.simulator.traces.build import csv_file, traces


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.parquet"])
@settings(max_examples=30, deadline=None)
@given(trace=traces())
def test_round_trip(name: str, trace: Trace) -> None:
    if name.endswith("zst"):
        pytest.importorskip("zstandard")
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_trace(trace, path)
        assert read_trace(path).same_jobs(trace)
        assert [entry.name for entry in Path(folder).iterdir()] == [name]


def test_only_what_is_known_is_written(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,0.50,1,5", "b,1,2,3600.000000001")
    text = io.StringIO()
    write_trace_to(read_trace(path), text)
    assert text.getvalue() == "job_id,submit_time_s,num_gpus,duration_s\na,0.5,1,5\nb,1,2,3600.000000001\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst"])
def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    if name.endswith("zst"):
        pytest.importorskip("zstandard")
    trace = read_trace(csv_file(tmp_path, "a,0,1,5"))
    first, second = tmp_path / "1" / name, tmp_path / "2" / name
    for path in (first, second):
        path.parent.mkdir()
        write_trace(trace, path)
    assert first.read_bytes() == second.read_bytes()


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    trace = read_trace(csv_file(tmp_path, "a,0,1,5"))
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        write_trace(trace, tmp_path / "missing" / "t.csv")


@pytest.mark.parametrize(("nanoseconds", "text"), [(0, "0"), (10**9, "1"), (1, "0.000000001"), (1_500_000_000, "1.5")])
def test_seconds_in_text(nanoseconds: int, text: str) -> None:
    assert seconds_text(nanoseconds) == text
