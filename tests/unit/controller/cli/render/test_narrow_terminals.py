"""Tables on a terminal of 80 columns, and the same outside a terminal, where nothing is left out or shortened."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from controller.base.text import clock_time, short_time
from controller.cli.render.jobs import show_explanation, show_queue
from controller.cli.render.preemptions import show_preemptions
from controller.cli.render.profiles import show_profile, show_profiles
from controller.cli.render.report import show_report
from controller.cli.render.status import show_event, show_status
from protos.headway.v1 import admin_pb2 as pb

WIDTH = 80
NOW_S = time.time()
LONG_AGO_S = NOW_S - 100e6
WHY = "jobs 123456 and 123460 slow each other down 1.42 times on the link of gpu-node-01"
BY = "fallback:fifo-skip"
REASON = "consolidated: 16 GPUs on 2 nodes, gpu-node-01 to gpu-node-02"


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns the lines that a function prints on a terminal of `WIDTH` columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def lines(show: Callable[..., None], *arguments: Any) -> list[str]:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            show(*arguments)
        return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()

    return lines


def queue() -> pb.Queue:
    start = pb.StartEstimate(earliest_s=NOW_S + 7530, latest_s=NOW_S + 40_800, held=41, known=50)
    starts = pb.QueueEntry(
        job_id="123456_12", user="alexandra", name="llama-70b", num_gpus=16, wait_s=45_300, start=start
    )
    waits = pb.QueueEntry(job_id="123458", user="bob", name="sweep", num_gpus=2, wait_s=100)
    for entry in (starts, waits):
        entry.state, entry.waits_for = "waiting", "for GPUs, in the policy's order"
        entry.why = "needs 16 GPUs in equal parts on 2 to 4 nodes; no GPU is free"
    where = ",".join(f"gpu-node-{node}:8" for node in range(8))
    runs = pb.QueueEntry(job_id="123450", user="bob", state="running", num_gpus=64, wait_s=3e5, placement=where)
    return pb.Queue(entries=[starts, waits, runs])


def preemptions() -> pb.PreemptionList:
    return pb.PreemptionList(
        preemptions=[
            pb.PreemptionRecord(
                number=1043, job_id="123456", asked_s=NOW_S, cause="threshold", way="checkpoint", stage="resumed", step=48_211,
                resumed_s=NOW_S + 50, nodes=["gpu-node-01", "gpu-node-02"], avoid=["gpu-node-01"], why=WHY,
            ),
            pb.PreemptionRecord(
                number=7, job_id="123457_12", asked_s=LONG_AGO_S, cause="operator", way="signal", stage="called off", why="by hand",
                problem="it did not save",
            ),
        ]
    )  # fmt: skip


def report() -> pb.JobSummary:
    run = pb.ReportedRun(
        start_s=NOW_S, end_s=NOW_S + 7500, placement="n1:8,n2:8", policy=BY, reason=REASON, slurm_state="PREEMPTED"
    )
    stop = pb.ReportedStop(cause="threshold", why=WHY, time_s=LONG_AGO_S, step=48_211, cost_s=41)
    return pb.JobSummary(
        job_id="123456", state="ended", submit_time_s=NOW_S, end_time_s=NOW_S, runs=[run], stops=[stop]
    )


def profiles() -> pb.ProfileList:
    now = pb.ContentionNow(job_id="123457_12", sensitivity=1.42, source="alone", confidence=0.95)
    kind = pb.ProfileKind(
        user="alexandra", script="train_gpt2_medium.py", signature="9f86d081884c7d65", gpu_model="NVIDIA H100 80GB HBM3",
        batch_size=32, gpus=16, nodes=2, alone_steps_per_s=3.21, last_s=LONG_AGO_S, running=[now],
    )  # fmt: skip
    return pb.ProfileList(kinds=[kind])


def test_each_job_of_the_queue_is_one_line_with_its_start(on_terminal: Callable[..., list[str]]) -> None:
    head, starts, waits, runs, past = on_terminal(show_queue, queue(), 0, NOW_S)

    assert head.rstrip().endswith("WHERE OR WHY")
    assert "12h35m starts in 2h5m-11h20m; for" in starts
    assert "for GPUs, in the policy's" in waits
    assert "gpu-node-0:8,gpu-node" in runs
    assert past == "Starts: of such estimates 8 in 10 held."


def test_the_steps_of_a_running_job_stand_before_its_nodes(
    on_terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    known = pb.QueueEntry(
        job_id="1", state="running", placement="n1:8", why="placed by srtf", steps=432, steps_in_all=1000
    )
    only_steps = pb.QueueEntry(job_id="2", state="running", placement="n2:8", steps=432)
    found = pb.Queue(entries=[known, only_steps])
    _, with_all, with_steps = on_terminal(show_queue, found, 0, NOW_S)
    show_queue(found, 0, NOW_S)

    assert with_all.rstrip().endswith("43%; n1:8")
    assert with_steps.rstrip().endswith("step 432; n2:8")
    assert "n1:8       step 432 of 1000 (43%); placed by srtf" in capsys.readouterr().out


def test_each_preemption_is_one_line_and_says_how_it_ended(on_terminal: Callable[..., list[str]]) -> None:
    head, resumed, off = on_terminal(show_preemptions, preemptions())

    assert head.split() == ["NUMBER", "JOB", "ASKED", "BY", "STAGE", "TOOK", "WHY"]
    assert f"123456    {short_time(NOW_S, time.time())}" in resumed
    assert "resumed    50.0 s jobs 123456 and" in resumed
    assert off.split()[2] == clock_time(LONG_AGO_S)[:10]
    assert off.rstrip().endswith("it did not save")


def test_only_texts_of_a_report_are_on_several_lines(on_terminal: Callable[..., list[str]]) -> None:
    lines = on_terminal(show_report, report())

    (run,) = (line for line in lines if BY in line)
    assert {"2h5m", "PREEMPTED", "n1:8,n2:8"} <= set(run.split())
    assert any("threshold" in line and "48211" in line and "41 s" in line for line in lines)
    assert max(map(len, lines)) <= WIDTH


def test_the_text_of_an_event_goes_on_below_its_beginning(on_terminal: Callable[..., list[str]]) -> None:
    event = pb.Event(time_s=NOW_S, kind="fallback", job_id="123457_12", user="alexandra", text=f"{BY} decides: {WHY}")
    first, *others = on_terminal(show_event, event)

    column = first.index(BY)
    assert others
    assert all(line[:column].isspace() and not line[column].isspace() and len(line) <= WIDTH for line in others)


@pytest.mark.parametrize(
    ("show", "found"),
    [
        (
            lambda found: show_status(found, 0),
            pb.Status(nodes=[pb.NodeUse(name="gpu-node-01", gpus=8, state="IDLE+DRAIN+NOT_RESPONDING")]),
        ),
        (show_profiles, profiles()),
        (
            show_profile,
            pb.JobMeasurements(
                steps=[pb.StepSplit(time_s=LONG_AGO_S, node="gpu-node-01", step_s=0.31, compute_s=0.2, bytes={"all_reduce": 4e9})]
            ),
        ),
        (
            show_explanation,
            pb.Explanation(decisions=[pb.DecisionRecord(time_s=NOW_S, policy=BY, placement="n1:8,n2:8", reason=REASON)]),
        ),
    ],
    ids=["status", "profiles", "profile", "why"],
)  # fmt: skip
def test_other_tables_fit(on_terminal: Callable[..., list[str]], show: Callable[[Any], None], found: Any) -> None:
    assert max(map(len, on_terminal(show, found))) <= WIDTH


def test_outside_a_terminal_nothing_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_preemptions(preemptions())
    head, resumed, off = capsys.readouterr().out.splitlines()

    assert head.split() == ["NUMBER", "JOB", "ASKED", "BY", "WAY", "STAGE", "STEP", "TOOK", "OFF", "TO", "WHY"]
    assert clock_time(NOW_S) in resumed and WHY in resumed
    assert off.endswith("by hand; it did not save")
