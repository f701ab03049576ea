"""The trace commands: their files, their output, and errors of the user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from simulator.cli.trace import app
from simulator.traces.read import read_trace
from tests.unit.simulator.traces.build import HEADER, csv_file


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_log_becomes_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "c1.csv"
    log.write_text("job_id,submission_time,duration,num_gpu\na,50,600,1\nb,20,60,8\nc,20,60,0\n")
    result = run("convert", "--from", "itp", log, "--out", tmp_path / "t.csv")
    assert result.exit_code == 0
    assert "left out: 1 jobs without GPUs" in result.stderr
    assert read_trace(tmp_path / "t.csv").job_ids == ("b", "a")
    assert run("convert", "--from", "itp", log).stdout == (tmp_path / "t.csv").read_text()


def test_a_workload_is_generated(tmp_path: Path) -> None:
    words = ("--like", "contention-rl", "--jobs", "24", "--seed", "2", "--cluster", "4x8", "--load", "0.9")
    result = run("generate", *words, "--arrivals", "poisson", "--set", "demands=2/4", "--out", tmp_path / "t.csv")
    assert result.exit_code == 0, result.stderr
    trace = read_trace(tmp_path / "t.csv")
    assert (len(trace), set(trace.num_gpus)) == (24, {2, 4})


def test_the_load_of_a_generated_trace_is_checked_and_printed(tmp_path: Path) -> None:
    words = ("--like", "philly", "--jobs", "400", "--cluster", "16x8", "--load", "0.9")
    result = run("generate", *words, "--out", tmp_path / "t.csv")
    assert "load 0.900 on 128 GPUs" in result.stderr
    assert "--warm begins as busy as the load says" in result.stderr
    described = json.loads(run("describe", tmp_path / "t.csv", "--cluster", "16x8", "--json").stdout)
    assert described["load"]["offered"] == pytest.approx(0.9, rel=1e-3)
    warm = run("generate", *words, "--warm", "--out", tmp_path / "w.csv")
    assert "load 0.900 on 128 GPUs" in warm.stderr
    assert "--warm" not in warm.stderr
    assert len(read_trace(tmp_path / "w.csv")) > 400


def test_parameters_are_shown() -> None:
    shown = run("generate", "--like", "philly", "--cluster", "2000x8", "--load", "0.8", "--show").stdout.splitlines()
    assert {"jobs=10000", "cluster_gpus=16000", "load=0.8", "arrivals=poisson"} <= set(shown)


def test_texts_of_a_trace_are_described_as_they_are(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,0,1,5,[/x],:on:", "b,10,8,5,\x1b[31mred,[bold]", header=f"{HEADER},model,status")
    text = run("describe", path.rename(tmp_path / "own[b].csv")).stdout

    assert "own[b]" in text
    assert "[/x] 1, ?[31mred 1" in text
    assert ":on: 1, [bold] 1" in text
    assert "0.013 GPU hours" in text


def test_a_trace_is_described(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "a,0,1,5", "b,10,8,5", "c,bad,1,5")
    result = run("describe", path, "--limit", "2", "--cluster", "1x8", "--json")
    message = json.loads(result.stdout)
    assert (message["jobs"], message["span_s"], message["load"]["too_large"]) == (2, 10, 0)
    assert message["load"]["offered"] == pytest.approx(45 / 80)
    text = run("describe", path, "--limit", "2", "--cluster", "1x4").stdout
    assert "1 jobs are larger than it" in text


def test_a_description_comes_with_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("describe", csv_file(tmp_path, "a,0,1,5", "b,10,8,5"), "--plot", tmp_path / "t.png")
    assert result.exit_code == 0
    assert (tmp_path / "t.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("convert", "--from", "nope", "x"), "--from 'nope' is not known; give one of philly"),
        (("convert", "--from", "helios"), "--from helios needs a file"),
        (("convert", "--from", "helios", "missing.csv"), "missing.csv: cannot be opened: No such file or directory"),
        (("generate", "--like", "nope"), "there is no generator 'nope'"),
        (("generate", "--like", "philly", "--set", "x"), "--set 'x' is not a setting; give NAME=VALUE"),
        (("generate", "--like", "philly", "--cluster", "8"), "--cluster '8' is not a cluster; give NxG"),
        (("generate", "--like", "philly", "--cluster", "0x8"), "--cluster '0x8' is not a cluster"),
        (("generate", "--like", "philly", "--jobs", "-1"), "-1 jobs cannot be drawn"),
        (("describe", "missing.csv"), "missing.csv: cannot be opened"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(words: tuple[str, ...], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("headway-sim trace: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_loads_nothing_that_a_command_needs() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from simulator.cli.trace import app;"
        "assert CliRunner().invoke(app, ['generate', '--help']).exit_code == 0;"
        "print(*({'numpy', 'pyarrow', 'matplotlib', 'simulator.traces.trace'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
