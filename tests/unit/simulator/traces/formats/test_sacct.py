"""A cluster's own history: the output of sacct, and running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator.errors import TraceError
from simulator.traces.formats import Loaded, Options, load_log
from simulator.traces.formats.sacct import FIELDS, ask_sacct, gpus_of
from simulator.traces.trace import NS_PER_S

HEADER = "|".join(FIELDS)
GPU = "billing=8,cpu=8,gres/gpu=2,mem=1G,node=1"


def row(
    job_id: str,
    *,
    submit: str = "1000",
    start: str = "1010",
    end: str = "9999",
    elapsed: str = "60",
    limit: str = "30",
    alloc: str = GPU,
    req: str = GPU,
    state: str = "COMPLETED",
    user: str = "ann",
    name: str = "train",
) -> str:
    return "|".join([job_id, submit, start, end, elapsed, limit, alloc, req, user, "lab", "gpu", state, name])


def load(folder: Path, *rows: str) -> Loaded:
    return load_months(folder, rows)


def load_months(folder: Path, *months: Sequence[str], header: str = HEADER) -> Loaded:
    """Load several outputs of sacct as one history."""
    paths = [folder / f"sacct{at}.txt" for at in range(len(months))]
    for path, rows in zip(paths, months, strict=True):
        path.write_text("\n".join([header, *rows]) + "\n")
    return load_log("sacct", paths)


def test_jobs_with_gpus_are_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("100", submit="1000"),
        row(
            "102",
            submit="1500",
            alloc="cpu=1,gres/gpu:a100=3,gres/gpu:h100=1",
            state="CANCELLED by 1000",
            limit="UNLIMITED",
        ),
        row("101", submit="1200", elapsed="7", limit="Partition_Limit", name="a|b", user="bob", state="TIMEOUT"),
    )
    trace = loaded.trace
    assert trace.job_ids == ("100", "101", "102")
    assert (trace.submit_ns / NS_PER_S).tolist() == [0, 200, 500]
    assert (trace.duration_ns / NS_PER_S).tolist() == [60, 7, 60]
    assert trace.num_gpus.tolist() == [2, 2, 4]
    assert trace.limit_ns.tolist() == [1800 * NS_PER_S, -1, -1]
    assert trace.status == ("COMPLETED", "TIMEOUT", "CANCELLED")
    assert trace.user == ("ann", "bob", "ann")
    assert trace.vc == ("gpu",) * 3
    assert trace.extra == {"account": ("lab",) * 3, "job_name": ("train", "a|b", "train")}
    assert loaded.skipped == {}


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("1"),
        row("1.batch"),
        row("1.0"),
        row("2", state="RUNNING"),
        row("3", state="PENDING", start="Unknown", elapsed="0"),
        row("4", alloc="cpu=8", req="cpu=8"),
        row("5", start="None", elapsed="0", alloc="", state="CANCELLED by 0"),
        row("6", elapsed="0", state="FAILED"),
    )
    assert loaded.trace.job_ids == ("1",)
    assert loaded.skipped == {
        "steps of jobs": 2,
        "jobs that had not ended when the log did": 2,
        "jobs without GPUs": 1,
        "jobs that never ran, or for no time at all": 2,
    }


def test_a_requeued_job_is_its_last_run_submitted_with_its_first(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("7", submit="2000", start="2100", elapsed="500", state="PREEMPTED"),
        row("7", submit="2600", start="3000", elapsed="900"),
        row("8", submit="2200", start="2300"),
        row("7", submit="2000", start="2050", elapsed="20", state="NODE_FAIL"),
    )
    assert loaded.trace.job_ids == ("7", "8")
    assert (loaded.trace.submit_ns / NS_PER_S).tolist() == [0, 200]
    assert (loaded.trace.duration_ns / NS_PER_S).tolist() == [900, 60]
    assert loaded.skipped == {"earlier runs of requeued jobs": 2}


def test_a_run_of_state_requeued_is_an_earlier_run(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("7", submit="1000", start="1100", elapsed="500", state="REQUEUED"),
        row("7", submit="1601", start="1700", elapsed="1000"),
        row("8", submit="900", start="900", elapsed="700"),
    )
    assert loaded.trace.job_ids == ("8", "7")
    assert (loaded.trace.submit_ns / NS_PER_S).tolist() == [0, 100]
    assert (loaded.trace.duration_ns / NS_PER_S).tolist() == [700, 1000]
    assert loaded.skipped == {"earlier runs of requeued jobs": 1}


@pytest.mark.parametrize("last", ["PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETED"])
def test_a_requeued_job_that_did_not_end_is_no_job(tmp_path: Path, last: str) -> None:
    waits = (
        {"start": "Unknown", "end": "Unknown", "elapsed": "0", "alloc": ""} if last == "PENDING" else {"start": "1700"}
    )
    loaded = load(
        tmp_path,
        row("7", submit="1000", start="1100", state="PREEMPTED"),
        row("7", submit="1601", state=last, **waits | ({"end": "Unknown"} if last == "COMPLETED" else {})),
        row("8"),
    )
    assert loaded.trace.job_ids == ("8",)
    assert loaded.skipped == {"earlier runs of requeued jobs": 1, "jobs that had not ended when the log did": 1}


def test_a_job_that_was_cancelled_before_it_ran_again_is_its_last_run(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("7", submit="1000", start="1100", elapsed="500", state="REQUEUED"),
        row("7", submit="1601", start="None", elapsed="0", alloc="", req="gres/gpu=4", state="CANCELLED by 1000"),
        row("8", submit="900"),
    )
    assert loaded.trace.job_ids == ("8", "7")
    assert (loaded.trace.duration_ns / NS_PER_S).tolist() == [60, 500]
    assert loaded.trace.num_gpus.tolist() == [2, 2]
    assert loaded.trace.status == ("COMPLETED", "CANCELLED")


def test_a_resized_job_does_the_gpu_time_of_all_its_parts(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        row("7", submit="1000", start="1100", elapsed="100", alloc="gres/gpu=16", state="REQUEUED"),
        row("7", submit="1300", start="1400", elapsed="100", alloc="gres/gpu=2", state="RESIZING"),
        row("7", submit="1500", start="1500", elapsed="300", alloc="gres/gpu=8", state="RESIZING"),
        row("7", submit="1800", start="1800", elapsed="60", alloc="gres/gpu=4", state="COMPLETED"),
    )
    assert loaded.trace.num_gpus.tolist() == [8]
    assert (loaded.trace.duration_ns / NS_PER_S).tolist() == [(2 * 100 + 8 * 300 + 4 * 60) / 8]
    assert loaded.trace.status == ("COMPLETED",)
    assert loaded.skipped == {"earlier parts of jobs that were resized": 2, "earlier runs of requeued jobs": 1}


@pytest.mark.parametrize("ended_first", [False, True])
def test_a_job_in_two_outputs_counts_once_in_its_last_state(tmp_path: Path, ended_first: bool) -> None:
    january = [
        row("6", submit="900", start="900", elapsed="50"),
        row("7", submit="1000", start="1100", end="Unknown", elapsed="400", state="RUNNING"),
        row("8", submit="1200", start="1300", elapsed="70"),
        row("9", submit="1400", start="Unknown", end="Unknown", elapsed="0", alloc="", state="PENDING"),
    ]
    february = [
        row("7", submit="1000", start="1100", elapsed="4000"),
        row("8", submit="1200", start="1300", elapsed="70"),
        row("9", submit="1400", start="5000", elapsed="90"),
    ]
    loaded = load_months(tmp_path, *([february, january] if ended_first else [january, february]))
    assert loaded.trace.job_ids == ("6", "7", "8", "9")
    assert (loaded.trace.duration_ns / NS_PER_S).tolist() == [50, 4000, 70, 90]
    assert loaded.skipped == {"rows that occur more than once": 3}


def test_runs_of_a_job_in_several_outputs_are_one_job(tmp_path: Path) -> None:
    loaded = load_months(
        tmp_path,
        [row("7", submit="1000", start="1100", state="REQUEUED"), row("8", submit="900")],
        [row("7", submit="3000", start="3100", elapsed="500"), row("8", submit="9000", user="bob")],
    )
    assert loaded.trace.job_ids == ("8", "7", "8@9000")
    assert (loaded.trace.submit_ns / NS_PER_S).tolist() == [0, 100, 8100]
    assert loaded.trace.name == "sacct0.txt+sacct1.txt"
    assert loaded.skipped == {"earlier runs of requeued jobs": 1}


def test_equal_ids_of_two_clusters_are_two_jobs(tmp_path: Path) -> None:
    rows = [f"{row('7', submit=submit)}" for submit in ("1000", "2000")]
    months = [[f"a|{rows[0]}"], [f"b|{rows[1]}"]]
    assert load_months(tmp_path, *months, header=f"Cluster|{HEADER}").trace.job_ids == ("7", "7@2000")


def test_outputs_with_dates_and_with_seconds_are_no_history(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"sacct1\.txt: has dates where .*sacct0\.txt has seconds"):
        load_months(tmp_path, [row("1")], [row("2", submit="2026-03-01T10:00:00")])


def test_an_error_names_the_file_and_the_line_of_the_row(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"sacct1\.txt, line 3, column Submit: 'x' is not a date"):
        load_months(tmp_path, [row("1"), row("2")], [row("3"), row("4", submit="x")])


def test_an_id_that_slurm_gave_twice_is_two_jobs(tmp_path: Path) -> None:
    loaded = load(tmp_path, row("7"), row("7", submit="9000", user="bob"))
    assert loaded.trace.job_ids == ("7", "7@9000")


def test_array_tasks_are_jobs(tmp_path: Path) -> None:
    assert len(load(tmp_path, row("20"), row("21"), row("22")).trace) == 3


def test_local_dates_are_read(tmp_path: Path) -> None:
    loaded = load(tmp_path, row("1", submit="2026-03-01T10:00:00"), row("2", submit="2026-03-01T10:00:07"))
    assert (loaded.trace.submit_ns / NS_PER_S).tolist() == [0, 7]


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("", 0),
        ("cpu=1", 0),
        (GPU, 2),
        ("gres/gpu:a100=1,gres/gpu=4", 4),
        ("gres/gpu:a=1,gres/gpu:b=2", 3),
        ("gres/gpumem=1", 0),
    ],
)
def test_gpus_are_read_from_tres(tres: str, gpus: int) -> None:
    assert gpus_of(tres) == gpus


@pytest.mark.parametrize("number", ["x", "99999999999999999999"])
def test_bad_tres_are_reported(tmp_path: Path, number: str) -> None:
    with pytest.raises(TraceError, match=rf"line 3, column AllocTRES: 'gres/gpu={number}' is not a list of TRES"):
        load(tmp_path, row("1"), row("2", alloc=f"gres/gpu={number}"))


def fake_sacct(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "sacct"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_without_a_file_sacct_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer").write_text(HEADER + "\n" + row("1") + "\n")
    asked = tmp_path / "asked"
    fake_sacct(tmp_path, f'echo "$SLURM_TIME_FORMAT" "$@" > {asked}; cat {tmp_path}/answer', monkeypatch)
    loaded = load_log("sacct", [], Options(since="now-7days"))
    assert loaded.trace.job_ids == ("1",)
    assert asked.read_text().split() == [
        *("%s", "--allusers", "--allocations", "--duplicates", "--parsable2", "--starttime=now-7days", "--endtime=now"),
        f"--format={','.join(FIELDS)}",
    ]


def test_an_sacct_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sacct(tmp_path, "echo 'sacct: error: Slurm accounting storage is disabled' >&2; exit 1", monkeypatch)
    with pytest.raises(TraceError, match="failed: sacct: error: Slurm accounting storage is disabled; see whether"):
        load_log("sacct", [])


def test_an_sacct_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sacct(tmp_path, "exec sleep 60", monkeypatch)
    with pytest.raises(TraceError, match="did not answer within 0 s; ask for less with --since"):
        ask_sacct(tmp_path / "output", since="now-1days", timeout_s=0.2)


def test_a_missing_sacct_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        TraceError, match="no sacct on this machine; run it on a machine of the cluster, or give a file"
    ):
        load_log("sacct", [])
