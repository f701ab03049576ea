"""`headway-sim run` as programs and people call it."""

from __future__ import annotations

import csv
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.main

from simulator.cli import main as cli
from simulator.cli.plain import LISTS, SWITCHES, VALUES, plain
from simulator.cli.run import run
from simulator.runs.options import RunOptions
from tests.unit.simulator.commands import write

ROWS = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "small.csv", ROWS)


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, output and errors of the program."""
    monkeypatch.setattr(sys, "argv", ["headway-sim", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    return lambda *words: call(monkeypatch, capsys, *words)


def test_json_is_one_object_with_the_contracts_keys(sim, trace: Path) -> None:
    code, out, err = sim("run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--json")

    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["jobs"], found["finished"], found["makespan_s"], found["p50_jct_s"]) == (3, 3, 30, 11)
    assert found["jobs_per_s"] == pytest.approx(3 / found["wall_s"])


def test_text_for_people(sim, trace: Path) -> None:
    code, out, _ = sim("run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo")

    assert code == 0
    assert "fifo on small, 1x4" in out
    assert "makespan:" in out
    assert "30.0 s" in out


def test_files(sim, trace: Path, tmp_path: Path) -> None:
    code, _, _ = sim(
        "run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--out", tmp_path / "out", "--json"
    )

    assert code == 0
    with (tmp_path / "out" / "jobs.csv").open() as file:
        jobs = list(csv.DictReader(file))
    assert [job["finish_time_s"] for job in jobs] == ["10", "30", "15"]
    assumed = json.loads((tmp_path / "out" / "summary.json").read_text())["assumptions"]
    assert (assumed["policy"], assumed["cluster"], assumed["slowdown"]) == ("fifo", "1x4", ["locality"])
    assert assumed["command"].startswith("headway-sim run --trace ")


def test_the_plain_reader_and_typer_have_the_same_options() -> None:
    command = typer.main.get_command(cli.app).commands["run"]
    of_typer = {flag for parameter in command.params for flag in parameter.opts} - {"--help"}

    assert of_typer == {*VALUES, *LISTS, *SWITCHES}
    parameters = {name for name, _ in VALUES.values()} | {*LISTS.values(), *SWITCHES.values()}
    assert parameters == {*inspect.signature(RunOptions).parameters, "policy", "out", "as_json"}
    assert len(inspect.signature(run).parameters) == len(of_typer)


def test_unusual_command_lines_are_left_to_typer() -> None:
    words = ["--trace", "t", "--cluster=8x8", "--policy", "fifo"]
    assert plain(words) == {"trace": Path("t"), "cluster": "8x8", "policy": "fifo"}
    assert plain([*words, "--slowdown", "locality", "--slowdown", "max-min"])["slowdown"] == ("locality", "max-min")
    for more in (
        ["--help"],
        ["--seed"],
        ["--seed", "x"],
        ["--seed", "1.5"],
        ["--what", "1"],
        ["--json=1"],
        ["-x"],
        ["y"],
    ):
        assert plain([*words, *more]) is None, more
    assert plain(words[2:]) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "none-such"], "no policy is named 'none-such'; installed: "),
        (["--policy", "fifo:x=1"], "policy 'fifo'"),
        (["--policy", "fifo:x"], "'x' is not of the form key=value"),
        (["--policy", "sched2-sif", "--placement", "any"], "policy sched2-sif takes no --placement"),
        (["--policy", "las:round_s=4", "--round", "5"], "set the same option"),
        (["--placement", "near"], "--placement 'near': give consolidated or any"),
        (["--slowdown", "none-such"], "there is no slowdown model 'none-such'; take none, or some of "),
        (["--slowdown", "none", "--slowdown", "locality"], "leave one or the other out"),
        (["--cluster", "8by8"], "'8by8' is not a cluster; give NxG"),
        (["--preempt-cost", "-1"], "--preempt-cost -1: give seconds, 0 or more"),
        (["--preempt-cost", "nan"], "--preempt-cost nan: give seconds"),
        (["--round", "inf"], "--round inf: give seconds"),
        (["--preemptible-share", "2"], "--preemptible-share 2: give a share from 0 to 1"),
        (["--preempt-cost", "1e300"], "--preempt-cost 1e+300: give seconds, 0 or more and less than 1e9"),
        (["--round", "1e300"], "--round 1e+300: give seconds, at most 4e9, or 0 for no rounds"),
        (["--checkpoint-interval", "0"], "--checkpoint-interval 0: give seconds, at least 1e-9"),
        (["--checkpoint-interval", "1e-12"], "--checkpoint-interval 1e-12: give seconds, at least 1e-9"),
        (["--seed", "-1"], "--seed -1: give a whole number, 0 or more"),
        (["--limit", "0"], "cannot be limited to 0 rows"),
        (["--estimates", "guessed"], "--estimates 'guessed': write true, limit, history, or noisy:SIGMA"),
        (["--failures", "/none-such"], "/none-such: cannot be opened"),
        (["--failures", "0:5"], "--failures 0:5: both times must be more than 0 s"),
        (["--profiles", "/none-such"], "/none-such"),
        (["--out", "/proc/none-such"], "--out /proc/none-such: nothing can be written there"),
        (["--trace", "/none-such"], "/none-such: cannot be opened"),
        (["--no-such-option"], "No such option: --no-such-option"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(sim, trace: Path, words: list[str], said: str) -> None:
    given = ["--trace", trace, "--cluster", "1x4", "--policy", "fifo"]
    for flag in words[::2]:
        if flag in given:
            at = given.index(flag)
            del given[at : at + 2]
    code, out, err = sim("run", *given, *words)

    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("headway-sim run: ")
    assert said in err


def test_a_job_that_is_too_large_is_refused_with_its_line_or_dropped_and_counted(sim, tmp_path: Path) -> None:
    trace = write(tmp_path / "t.csv", [*ROWS, (5.0, 5, 1.0)])
    words = ["run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--json"]

    code, _, err = sim(*words)
    assert code == 2
    assert f"{trace}, line 5, column num_gpus: '5' is more than the cluster" in err
    assert "job j3" in err
    assert "--drop-impossible" in err

    code, out, _ = sim(*words, "--drop-impossible")
    assert code == 0
    assert (json.loads(out)["jobs"], json.loads(out)["dropped"]) == (3, 1)


def test_placement_round_and_seed_reach_the_policies_that_take_them(sim, tmp_path: Path) -> None:
    # From 1 s on three GPUs are free on each node of four: too scattered for a job of five, unless it may go anywhere.
    trace = write(tmp_path / "t.csv", [(0.0, 1, 100.0), (0.0, 3, 1.0), (0.0, 1, 100.0), (2.0, 5, 10.0)])
    finish = {}
    for placement in ("consolidated", "any"):
        out = tmp_path / placement
        words = ["--trace", trace, "--cluster", "2x4", "--policy", "fifo", "--slowdown", "none"]
        assert sim("run", *words, "--placement", placement, "--out", out, "--json")[0] == 0
        finish[placement] = (out / "jobs.csv").read_text().splitlines()[4].split(",")[3]
        assert json.loads((out / "summary.json").read_text())["assumptions"]["placement"] == placement
    assert finish == {"consolidated": "110", "any": "12"}

    out = tmp_path / "las"
    assert sim("run", *words[:4], "--policy", "las", "--round", "7", "--out", out, "--json")[0] == 0
    assert json.loads((out / "summary.json").read_text())["assumptions"]["round_s"] == 7


def test_failures_from_a_file(sim, trace: Path, tmp_path: Path) -> None:
    script = tmp_path / "failures.csv"
    script.write_text("time_s,node,change\n5,n0,down\n8,0,up\n")
    words = ["run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--preempt-cost", "0", "--json"]

    code, out, _ = sim(*words, "--failures", script)

    assert code == 0
    assert json.loads(out)["failures"] == 1
    assert json.loads(out)["makespan_s"] == 38

    for text, said in (
        ("time,node,change\n", "line 1: 'time,node,change' has another header; write time_s,node,change"),
        ("time_s,node,change\n5,n7,down\n", "line 2, column node: 'n7' is not possible; give a node's name"),
        ("time_s,node,change\n-5,0,down\n", "line 2, column time_s: '-5' is not possible"),
        (
            "time_s,node,change\n5,0,break\n",
            "line 2, column change: 'break' is not possible; give one of down, drain, up",
        ),
        ("time_s,node,change\n5,0\n", "line 2: '5,0' has 2 fields; write 3"),
    ):
        script.write_text(text)
        code, _, err = sim(*words, "--failures", script)
        assert code == 2
        assert said in err


UNIX_S = 1_700_000_000


def test_a_trace_of_unix_times_fails_as_it_does_from_zero(sim, trace: Path, tmp_path: Path) -> None:
    later = write(tmp_path / "later.csv", [(UNIX_S + submit, gpus, duration) for submit, gpus, duration in ROWS])
    script = tmp_path / "failures.csv"
    keys = ("avg_jct_s", "makespan_s", "failures", "decisions")

    def figures(path: Path, failures: object, *more: object) -> list[float]:
        words = ["--trace", path, "--cluster", "1x4", "--policy", "las", "--preempt-cost", "0", "--failures", failures]
        code, out, err = sim("run", *words, *more, "--json")
        assert code == 0, err
        return [json.loads(out)[key] for key in keys]

    script.write_text("time_s,node,change\n5,n0,down\n8,0,up\n")
    from_zero = figures(trace, script)
    assert from_zero[2] == 2
    assert figures(later, script, "--out", tmp_path / "out") == from_zero

    # The files keep the clock of the trace.
    with (tmp_path / "out" / "jobs.csv").open() as file:
        assert [float(job["submit_time_s"]) - UNIX_S for job in csv.DictReader(file)] == [0, 2, 4]
    with (tmp_path / "out" / "series.csv").open() as file:
        assert float(next(csv.DictReader(file))["time_s"]) == UNIX_S

    # Failures of the same log may be on that clock too: this node came back before the trace began.
    script.write_text(
        f"time_s,node,change\n{UNIX_S + 8},0,up\n{UNIX_S - 20},0,down\n{UNIX_S - 10},0,up\n{UNIX_S + 5},0,down\n"
    )
    assert figures(later, script) == from_zero
    assert figures(later, "20:3") == figures(trace, "20:3")
    assert figures(later, "20:3")[2] > 0


@pytest.mark.parametrize(
    ("begin_s", "times", "said"),
    [
        (
            UNIX_S,
            (0, UNIX_S + 5),
            "has Unix times beside times from the first submission on; write Unix times throughout",
        ),
        (0, (0, UNIX_S + 5), "has Unix times beside times from the first submission on"),
        (
            0,
            (UNIX_S, UNIX_S + 5),
            "has Unix times, and the trace has none; write seconds from the trace's first submission",
        ),
    ],
)
def test_failures_on_another_clock_than_the_trace_are_refused(
    sim, tmp_path: Path, begin_s: int, times: tuple[int, int], said: str
) -> None:
    trace = write(tmp_path / "t.csv", [(begin_s + submit, gpus, duration) for submit, gpus, duration in ROWS])
    script = tmp_path / "failures.csv"
    script.write_text(f"time_s,node,change\n{times[0]},0,down\n{times[1]},0,up\n")
    code, _, err = sim("run", "--trace", trace, "--cluster", "1x4", "--policy", "fifo", "--failures", script)
    assert code == 2
    assert f"{script}, column time_s: {said}" in err


def test_drawn_failures_are_those_of_the_seed(sim, trace: Path) -> None:
    words = ["run", "--trace", trace, "--cluster", "2x4", "--policy", "fifo", "--failures", "20:3", "--json"]
    found = [json.loads(sim(*words, "--seed", seed)[1]) for seed in (1, 1, 2)]
    keys = ("avg_jct_s", "failures", "decisions")

    assert [found[0][key] for key in keys] == [found[1][key] for key in keys]
    assert [found[0][key] for key in keys] != [found[2][key] for key in keys]
    assert all(each["finished"] == 3 for each in found)


def test_help_and_no_command(sim) -> None:
    code, out, _ = sim("--help")
    assert code == 0
    assert all(command in out for command in ("run", "compare", "trace"))
    code, out, err = sim()
    assert code == 2
    assert "Usage:" in out + err
    code, _, err = sim("runn")
    assert code == 2
    assert err.count("\n") == 1


def test_a_small_run_imports_neither_typer_nor_rich(trace: Path) -> None:
    words = ["headway-sim", "run", "--trace", str(trace), "--cluster", "1x4", "--policy", "srtf", "--json"]
    program = (
        f"import sys; sys.argv = {words}; from simulator.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in ('typer', 'rich', 'matplotlib', 'pyarrow', 'grpc', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines()[-1] == "[]"


def test_arithmetic_has_one_thread_as_in_the_policy_server(trace: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'headway-scheduler[train]'")
    words = ["headway-sim", "run", "--trace", str(trace), "--cluster", "1x4", "--policy", "srtf", "--json"]
    program = (
        f"import sys; sys.argv = {words}; from simulator.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "import torch; print(torch.get_num_threads())"
    )
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=variables
    )

    assert done.stdout.splitlines()[-1] == "1"


@pytest.mark.timeout(60)
def test_ctrl_c_ends_a_run_cleanly(tmp_path: Path) -> None:
    rows = [(float(at), 1, 4e6) for at in range(4000)]
    trace = write(tmp_path / "t.csv", rows)
    words = ["run", "--trace", trace, "--cluster", "1x8", "--policy", "las", "--round", "60", "--preempt-cost", "0"]
    # Not before it simulates: the start of the interpreter is not ours to make clean.
    program = (
        "from simulator.runs import one as running\nrun = running.run\n"
        "def reporting(*words):\n    print('runs', flush=True)\n    return run(*words)\n"
        "running.run = reporting\nfrom simulator.cli.main import main; main()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "runs\n"
    time.sleep(1.0)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=30)

    assert running.returncode == 130
    assert err == "headway-sim: interrupted\n"


def test_a_closed_output_pipe_is_no_error(trace: Path) -> None:
    words = f"run --trace {trace} --cluster 1x4 --policy fifo --json"
    program = (
        f"{sys.executable} -c 'from simulator.cli.main import main; main()' {words} | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
