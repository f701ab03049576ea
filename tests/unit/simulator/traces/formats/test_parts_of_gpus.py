"""Jobs that request a part of a GPU: rounded up, or counted in shares, by `--gpu-shares`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.cli import main as cli
from simulator.errors import TraceError
from simulator.traces.formats import Options, load_log
from simulator.traces.formats.parts import in_shares

HEADER = "job_id,submit_time_s,num_gpus,duration_s,user\n"


def converted(folder: Path, form: str, text: str, shares: int) -> dict[str, int]:
    path = folder / "log.csv"
    path.write_text(text)
    trace = load_log(form, [path], Options(gpu_shares=shares)).trace
    return dict(zip(trace.job_ids, trace.num_gpus.tolist(), strict=True))


@pytest.mark.parametrize(("shares", "sizes"), [(1, [1, 1, 2, 3, 1]), (4, [2, 1, 6, 12, 1]), (10, [5, 1, 15, 30, 1])])
def test_parts_are_rounded_up_to_shares(shares: int, sizes: list[int]) -> None:
    assert in_shares(np.array([0.5, 0.1, 1.5, 3.0, 1e-9]), shares).tolist() == sizes


@pytest.mark.parametrize(("shares", "sizes"), [(1, {"a": 1, "b": 2}), (8, {"a": 4, "b": 16})])
def test_a_trace_in_the_common_form(tmp_path: Path, shares: int, sizes: dict[str, int]) -> None:
    text = HEADER + "a,5,0.5,100,ann\nnone,6,0,100,ann\nb,7,2,100.5,bob\n"
    assert converted(tmp_path, "fractional", text, shares) == sizes
    loaded = load_log("fractional", [tmp_path / "log.csv"], Options(gpu_shares=shares))
    assert loaded.trace.user == ("ann", "bob")
    assert loaded.trace.extra == {"requested_gpus": ("0.5", "2")}
    assert loaded.skipped == {"jobs without GPUs": 1}


def test_other_columns_are_kept_also_of_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "job_id": ["a"],
        "submit_time_s": [5],
        "num_gpus": [0.5],
        "duration_s": [100],
        "epochs": [7],
        "self": ["x"],
    }
    text = "\n".join(",".join(map(str, row)) for row in (columns, [each[0] for each in columns.values()]))
    (tmp_path / "log.csv").write_text(text + "\n")
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        trace = load_log("fractional", [tmp_path / name], Options(gpu_shares=4)).trace
        assert trace.num_gpus.tolist() == [2]
        assert trace.extra == {"epochs": ("7",), "self": ("x",), "requested_gpus": ("0.5",)}


@pytest.mark.parametrize("text", ["-1", "many", "", "inf"])
def test_what_is_no_number_of_gpus_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="line 3, column num_gpus"):
        converted(tmp_path, "fractional", HEADER + f"a,5,0.5,100,ann\nb,6,{text},100,ann\n", 4)


def test_pods_that_share_a_gpu(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "half,1,1,1,460,,LS,Succeeded,100,890,140\neight,1,1,8,1000,,BE,Succeeded,120,220,120\n"
    )
    assert converted(tmp_path, "openb", text, 1) == {"half": 1, "eight": 8}
    assert converted(tmp_path, "openb", text, 10) == {"half": 5, "eight": 80}


def test_planned_hundredths(tmp_path: Path) -> None:
    text = "j1,worker,2.0,Terminated,100.0,400.0,600.0,29.3,75.0,T4\n"
    assert converted(tmp_path, "pai", text, 1) == {"j1": 2}
    assert converted(tmp_path, "pai", text, 4) == {"j1": 6}


def test_the_error_of_a_part_of_a_gpu_says_how_to_convert_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + "a,5,0.5,100,ann\nb,7,2,100.5,bob\n")

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headway-sim", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    code, _, err = call("run", "--trace", str(path), "--cluster", "1x4", "--policy", "fifo")
    assert (code, "--from fractional" in err) == (2, True)
    given = (
        "trace",
        "convert",
        "--from",
        "fractional",
        str(path),
        "--gpu-shares",
        "4",
        "-o",
        str(tmp_path / "quarters.csv"),
    )
    assert call(*given)[0] == 0
    assert call("run", "--trace", str(tmp_path / "quarters.csv"), "--cluster", "1x16", "--policy", "fifo")[0] == 0
    code, _, err = call("trace", "convert", "--from", "swf", str(path), "--gpu-shares", "4")
    assert (code, "--gpu-shares" in err) == (2, True)
