"""`headway-sim compare`: several policies at once."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest

from simulator.cli.compare import names_in
from tests.unit.simulator.commands import headway_sim, write

ROWS = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    trace = write(tmp_path / "small.csv", ROWS)

    def call(*words: object) -> tuple[int, str, str]:
        return headway_sim(monkeypatch, capsys, "compare", "--trace", trace, "--cluster", "1x4", *words)

    return call


def test_a_table_of_all_policies(compare) -> None:
    code, out, _ = compare("--policies", "fifo,srtf,las")

    assert code == 0
    lines = {line.rsplit("  ", 3)[0].strip(): line for line in out.splitlines() if line.strip()}
    header = next(line for line in out.splitlines() if "fifo" in line)
    assert header.split() == ["fifo", "srtf", "las"]
    assert any("average JCT" in line for line in lines.values())


def test_names_that_look_like_markup_are_printed_as_they_are(compare, tmp_path: Path) -> None:
    trace = write(tmp_path / "own[b].csv", ROWS)
    code, out, _ = compare("--trace", trace, "--policies", "fifo,random:seed=1")
    assert code == 0
    assert "own[b] on 1x4" in out


def test_json_by_policy(compare) -> None:
    code, out, _ = compare("--policies", "fifo,srtf:layout=anywhere", "--json")

    assert code == 0
    found = json.loads(out)
    assert list(found) == ["fifo", "srtf:layout=anywhere"]
    assert found["fifo"]["makespan_s"] == 30
    assert found["fifo"]["fragmentation"] is not None


def test_files_of_each_and_a_page(compare, tmp_path: Path) -> None:
    code, out, _ = compare("--policies", "fifo,sjf", "--out", tmp_path / "out")

    assert code == 0
    assert str(tmp_path / "out" / "report.html") in out
    for policy in ("fifo", "sjf"):
        assert (tmp_path / "out" / policy / "jobs.csv").read_text().count("\n") == 4


def test_files_of_policies_with_long_names(compare, tmp_path: Path) -> None:
    long = [f"random:seed={'0' * count}1" for count in (300, 301)]
    code, _, _ = compare("--policies", ",".join(long), "--out", tmp_path / "out")

    assert code == 0
    found = {json.loads(path.read_text())["assumptions"]["policy"] for path in tmp_path.glob("out/*/summary.json")}
    assert found == set(long)


def test_the_page_names_the_jobs_that_ran(compare, tmp_path: Path) -> None:
    trace = write(tmp_path / "drop.csv", [(0.0, 64, 10.0), *ROWS])
    words = ["--trace", trace, "--cluster", "1x4", "--policies", "fifo,srtf", "--drop-impossible", "--out"]
    assert compare(*words, tmp_path / "out")[0] == 0

    page = re.search(r'id="data">(.*?)</script>', (tmp_path / "out" / "report.html").read_text(), re.DOTALL)
    assert page is not None
    data = json.loads(page[1])
    assert (data["trace"]["ids"], data["dropped"]) == (["j1", "j2", "j3"], 1)
    for run in data["runs"]:
        jobs = np.frombuffer(base64.b64decode(run["gantt"]["job"]), dtype="<u4")
        gpus = np.frombuffer(base64.b64decode(run["gantt"]["gpus"]), dtype="<u2")
        assert {(data["trace"]["ids"][job], count) for job, count in zip(jobs, gpus, strict=True)} == {
            ("j1", 4), ("j2", 2), ("j3", 2),
        }  # fmt: skip


def test_a_page_without_jobs_is_refused(compare, tmp_path: Path) -> None:
    trace = write(tmp_path / "none.csv", [(0.0, 64, 10.0)])
    words = ["--trace", trace, "--policies", "fifo,srtf", "--drop-impossible", "--out", tmp_path / "out"]
    code, _, err = compare(*words)
    assert (code, "no job is left to draw" in err) == (2, True)


def test_options_go_to_those_that_take_them(compare) -> None:
    assert compare("--policies", "fifo,las", "--round", "50", "--json")[0] == 0
    assert compare("--policies", "sched2-sif,fifo", "--placement", "any", "--json")[0] == 0
    code, _, err = compare("--policies", "sched2-sif,sched2-lrf", "--placement", "any")
    assert (code, err) == (2, "headway-sim compare: none of the policies takes --placement; leave it out\n")


MIXED = """
[[nodes]]
gpus = 8
count = 1
[[nodes]]
gpus = 4
count = 2
"""
"""Nodes of two sizes. Consolidated, a job of 14 GPUs asks for a node of 8 and one of 6, which there is not; anywhere, it fits."""


def mixed(tmp_path: Path) -> list[object]:
    """Return the words for a cluster of two kinds of nodes, and a trace of which one job fits only without consolidation."""
    (tmp_path / "mixed.toml").write_text(MIXED)
    trace = write(tmp_path / "mixed.csv", [(0.0, 2, 10.0), (1.0, 14, 5.0), (2.0, 4, 20.0), (3.0, 64, 20.0)])
    return ["--trace", trace, "--cluster", tmp_path / "mixed.toml", "--drop-impossible"]


def test_all_policies_run_the_same_jobs_whatever_their_rule_of_placement(compare, tmp_path: Path) -> None:
    code, out, _ = compare(*mixed(tmp_path), "--policies", "srtf,srtf-count,fifo:layout=anywhere,random", "--json")

    assert code == 0
    assert {(each["jobs"], each["dropped"]) for each in json.loads(out).values()} == {(2, 2)}


def test_all_runs_of_a_sweep_have_the_same_jobs(sweep, tmp_path: Path) -> None:
    text = 'policies = ["srtf", "srtf-count"]\n[sweep]\nplacement = ["consolidated", "any"]\n'
    code, out, _ = sweep(text, *mixed(tmp_path), "--json")

    assert code == 0
    assert [(run["figures"]["jobs"], run["figures"]["dropped"]) for run in json.loads(out)] == [(2, 2)] * 4


def test_jobs_that_a_policy_left_unfinished_are_reported(compare, sweep, tmp_path: Path) -> None:
    said = "2 of 3 jobs never finished and are in no mean: the policy could not place them"
    (tmp_path / "down.csv").write_text("time_s,node,change\n11,0,down\n")
    code, out, _ = compare("--policies", "fifo-skip,srtf", "--slowdown", "none", "--failures", tmp_path / "down.csv")
    assert code == 0
    assert [line for line in out.splitlines() if "never" in line] == [f"fifo-skip: {said}", f"srtf: {said}"]

    code, out, _ = sweep(SWEEP.replace("[2, 3]", "[3]"), "--failures", tmp_path / "down.csv", "--policies", "srtf")
    assert code == 0
    assert [line for line in out.splitlines() if "never" in line] == [
        f"srtf with preempt-cost {cost}, limit 3: {said}" for cost in (0, 7.5)
    ]


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ("fifo,none-such", "no policy is named 'none-such'"),
        ("fifo,fifo", "--policies: fifo is given twice"),
        (",", "--policies: give a,b,c"),
    ],
)
def test_wrong_usage_is_reported(compare, policies: str, said: str) -> None:
    code, _, err = compare("--policies", policies)

    assert code == 2
    assert err.count("\n") == 1
    assert said in err


def test_names_with_options() -> None:
    assert names_in("a,b:x=1,y=2,c") == ["a", "b:x=1,y=2", "c"]
    assert names_in(" a , b:x=1,c:y=2") == ["a", "b:x=1", "c:y=2"]


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Runs `headway-sim compare --config` on a file with that text, from another folder."""
    (tmp_path / "study").mkdir()
    write(tmp_path / "study" / "small.csv", ROWS)
    monkeypatch.chdir(tmp_path)

    def call(text: str, *words: object) -> tuple[int, str, str]:
        (tmp_path / "study" / "sweep.toml").write_text(text)
        return headway_sim(monkeypatch, capsys, "compare", "--config", "study/sweep.toml", *words)

    return call


SWEEP = """
trace = "small.csv"
cluster = "1x4"
policies = ["fifo", "srtf:layout=anywhere"]
slowdown = "none"
[sweep]
preempt-cost = [0, 7.5]
limit = [2, 3]
"""


def test_every_combination_of_a_file_is_run(sweep, compare, tmp_path: Path) -> None:
    code, out, _ = sweep(SWEEP, "--json", "--out", tmp_path / "out")
    assert code == 0
    runs = json.loads(out)
    assert [(run["options"]["preempt-cost"], run["options"]["limit"], run["policy"]) for run in runs] == [
        (cost, limit, policy) for cost in (0, 7.5) for limit in (2, 3) for policy in ("fifo", "srtf:layout=anywhere")
    ]
    for run in runs:  # each as it is when run alone
        words = [
            "--slowdown",
            "none",
            "--preempt-cost",
            run["options"]["preempt-cost"],
            "--limit",
            run["options"]["limit"],
        ]
        alone = json.loads(compare("--policies", run["policy"], *words, "--json")[1])[run["policy"]]
        for figure in ("avg_jct_s", "makespan_s", "preemptions", "jobs", "overhead_gpu_s"):
            assert run["figures"][figure] == alone[figure], (run["options"], figure)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == runs
    header, *rows = (tmp_path / "out" / "sweep.csv").read_text().splitlines()
    assert header.startswith("preempt-cost,limit,policy,jobs,")
    assert len(rows) == 8
    assert rows[-1].startswith("7.5,3,srtf:layout=anywhere,3,")


def test_the_command_line_replaces_what_the_file_says(sweep) -> None:
    code, out, _ = sweep(SWEEP, "--limit", 1, "--policies", "las", "--json")
    assert code == 0
    assert [(run["options"], run["policy"], run["figures"]["jobs"]) for run in json.loads(out)] == [
        ({"preempt-cost": 0}, "las", 1), ({"preempt-cost": 7.5}, "las", 1),
    ]  # fmt: skip


def test_a_table_of_a_sweep(sweep) -> None:
    code, out, _ = sweep(SWEEP)
    assert code == 0
    assert out.split()[:3] == ["preempt-cost", "limit", "policy"]
    assert len(out.splitlines()) == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SWEEP.replace("limit =", "limits ="), "`limits` is no option of a run; there are trace, cluster, slowdown,"),
        (SWEEP.replace("[2, 3]", '["two"]'), "`limit` is 'two'; give a whole number"),
        (SWEEP.replace("[2, 3]", "[true]"), "`limit` is True; give a whole number"),
        (SWEEP.replace("[2, 3]", "[]"), "`sweep.limit` is no list of values"),
        (SWEEP.replace("[2, 3]", "3"), "`sweep.limit` is no list of values"),
        (SWEEP.replace('cluster = "1x4"', ""), "`cluster` is missing"),
        (SWEEP.replace('slowdown = "none"', "limit = 3"), "limit stands in `sweep` and outside; keep one of them"),
        (SWEEP.replace('"fifo", ', '"srtf:layout=anywhere", '), "give `policies`, a list of different names"),
        (SWEEP.replace("[0, 7.5]", "[-1]"), "--preempt-cost -1: give seconds, 0 or more"),
        (SWEEP.replace("[2, 3]", str(list(range(6000)))), "more than 10,000 combinations"),
        ("policies = 3", "`policies` a list of names"),
        ("policies = [", "sweep.toml: "),
    ],
)
def test_a_wrong_file_is_reported(sweep, text: str, said: str) -> None:
    code, out, err = sweep(text)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("headway-sim compare: ")


def test_a_file_that_is_not_there_is_reported(compare, tmp_path: Path) -> None:
    code, _, err = compare("--config", tmp_path / "none.toml")
    assert code == 2
    assert "none.toml: cannot be read (No such file or directory); give a TOML file" in err


def test_without_a_file_the_options_of_a_run_are_needed(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    code, _, err = headway_sim(monkeypatch, capsys, "compare", "--policies", "fifo")
    assert code == 2
    assert "--trace is missing; give --trace, --cluster and --policies, or --config FILE" in err
