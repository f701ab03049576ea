"""`headway-sim leaderboard`: whole traces at several loads and estimates, as table, page, Markdown and JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from simulator.cli import main as cli
from simulator.traces.generators import from_text, generate
from simulator.traces.write import write_trace


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    paths = []
    for seed in (1, 2):
        texts = {"jobs": "60", "arrivals": "poisson", "load": "0.5", "cluster_gpus": "8", "seed": str(seed)}
        workload = from_text("contention-rl", {**texts, "demands": "1/2/4", "duration_spread": "1"})
        paths.append(tmp_path / f"t{seed}.csv")
        write_trace(generate("contention-rl", workload), paths[-1])
    return paths


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["headway-sim", *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def words(traces: list[Path], *more: str) -> tuple[str, ...]:
    given = ",".join(map(str, traces))
    return "leaderboard", "--traces", given, "--cluster", "2x4", "--policies", "fifo-skip,srtf,las", *more


def test_every_combination_is_run_and_the_loads_are_those_asked_for(
    traces: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(traces, "--loads", ".7,1.2", "--estimates", "true,noisy:1", "--json")
    code, out, _ = call(monkeypatch, capsys, *given)

    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert len(found["runs"]) == 2 * 2 * 2 * 3
    assert found["blocks"] == 2
    assert {(row["trace"], row["named"], round(row["load"], 3)) for row in found["loads"]} == {
        (trace, load, load) for trace in ("t1", "t2") for load in (0.7, 1.2)
    }
    assert {row["policy"] for row in found["policies"]} == {"fifo-skip", "srtf", "las"}
    assert {row["metric"] for row in found["pairs"]} == {"avg_jct_s", "p90_jct_s", "p99_jct_s", "makespan_s"}
    by_policy: dict[str, list[Any]] = {}
    for row in found["runs"]:
        key = row["trace"], row["part"], row["named_load"], row["estimates"], row["figures"]["carried"]
        by_policy.setdefault(row["policy"], []).append(key)
    assert by_policy["fifo-skip"] == by_policy["srtf"] == by_policy["las"]
    fifo = {row["estimates"]: row["figures"]["avg_jct_s"] for row in found["runs"] if row["policy"] == "srtf"}
    assert fifo["true"] != fifo["noisy:1"]
    assert "--loads .7,1.2" in found["command"]


def test_windows_begin_full(
    traces: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(traces, "--loads", "1.2", "--windows", "2", "--json", "--warm-up", "fifo-skip")
    code, out, _ = call(monkeypatch, capsys, *given)

    assert code == 0
    found = json.loads(out)
    assert found["blocks"] == 4
    second = [row["figures"]["carried"] for row in found["runs"] if row["part"] == "jobs 34 to 60"]
    assert len(second) == 6
    assert min(second) > 0
    assert "as full as fifo-skip has left it" in found["runs_are"]


def test_one_table_and_one_page(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(monkeypatch, capsys, *words(traces, "--loads", "own,1", "--out", str(tmp_path / "out")))

    assert code == 0
    assert "average JCT against fifo-skip" in out
    assert "Not significant:" in out
    assert "t1 on 2x4: load 1.000 on 8 GPUs" in err
    page = (tmp_path / "out" / "leaderboard.html").read_text(encoding="utf-8")
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    assert len(ElementTree.fromstring(svg).findall("circle")) == 2
    body = page[page.index("<main>") : page.index("</main>") + 7]
    ElementTree.fromstring(body)
    assert "Themis" in body and "http" not in body
    text = (tmp_path / "out" / "leaderboard.md").read_text(encoding="utf-8")
    assert text.startswith("### Policies")
    assert "Differences that are not significant:" in text
    assert json.loads((tmp_path / "out" / "leaderboard.json").read_text())["blocks"] == 2


def test_the_fronts_are_printed_and_drawn(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(
        monkeypatch, capsys, *words(traces, "--loads", "1.2", "--front", "--out", str(tmp_path / "out"))
    )

    assert code == 0
    assert "Pareto front" in out and "average and p99 JCT" in out
    found = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert set(found["fronts"]) == {"p99 JCT", "makespan", "fairness rho"}
    assert all(front[0] == found["policies"][0]["policy"] for front in found["fronts"].values())
    page = (tmp_path / "out" / "leaderboard.html").read_text(encoding="utf-8")
    picture = ElementTree.parse(tmp_path / "out" / "front.svg")
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}circle")) == 3 * 3
    assert page.count("class='front'") == 1
    ElementTree.fromstring(page[page.index("<main>") : page.index("</main>") + 7])


def test_the_markdown_names_the_runs(
    traces: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(monkeypatch, capsys, *words(traces, "--loads", ".7,1.2", "--markdown"))

    assert code == 0
    runs = out[out.index("### Runs") :]
    for trace in ("t1", "t2"):
        for load in ("0.70", "1.20"):
            for policy in ("fifo-skip", "srtf", "las"):
                assert runs.count(f"| {trace} | jobs 7 to 60 | 2x4 | {load} | true | {policy} |") == 1
    assert "front" not in out


def test_contention_stands_beside_a_published_figure(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unnamed = tmp_path / "log.csv"
    rows = [f"{job},{100 * job},{1 + job % 7},{300 + job}" for job in range(60)]
    unnamed.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s", *rows]) + "\n")
    given = ("leaderboard", "--traces", str(unnamed), "--cluster", "3x4", "--policies", "fifo-skip,srtf")
    more = ("--slowdown", "link-sharing", "--models", "heavy", "--out", str(tmp_path / "out"))
    code, out, _ = call(monkeypatch, capsys, *given, *more)
    assert code == 0
    assert "36.3 %" in out and "models drawn from the mix heavy" in out
    found = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    for policy in found["policies"]:
        share, by, sharing, gpu_time = policy["contention"].values()
        assert 0 < share <= 1 and by > 0.01 and 0 < sharing < gpu_time <= 1
    code, _, err = call(monkeypatch, capsys, *words(traces, "--models", "heaviest"))
    assert (code, "--models 'heaviest': give one of normal" in err) == (2, True)


def test_a_part_of_a_trace_can_be_a_virtual_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{job},{60 * job},1,{300 + job},{'left' if job % 2 else 'right'}" for job in range(80)]
    path = tmp_path / "both.csv"
    path.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s,vc", *rows]) + "\n")
    given = ("leaderboard", "--cluster", "1x4", "--policies", "fifo", "--markdown", "--traces")
    code, out, _ = call(monkeypatch, capsys, *given, f"{path}@left,{path}@right")
    assert code == 0
    assert "| both@left | 1x4 | own |" in out
    code, _, err = call(monkeypatch, capsys, *given, f"{path}@middle")
    assert (code, "has no job of virtual cluster 'middle'" in err) == (2, True)


def test_rows_of_a_log_that_are_no_jobs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{job},1,{60 * job},9,vgg19,{0 if job % 10 == 9 else 300 + job},60" for job in range(60)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["job_id,num_gpu,submit_time,iterations,model_name,duration,interval", *rows]) + "\n")
    given = (
        "leaderboard",
        "--cluster",
        "1x4",
        "--policies",
        "fifo",
        "--traces",
        f"tiresias:{path}",
        "--loads",
        "1,own",
    )
    code, out, _ = call(monkeypatch, capsys, *given, "--out", str(tmp_path / "out"))
    assert code == 0
    for text in (out, *((tmp_path / "out" / f"leaderboard.{form}").read_text() for form in ("html", "md"))):
        assert text.count("log: left out: 6 jobs that never ran, or for no time at all") == 1
    found = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert found["left_out"] == {"log": {"jobs that never ran, or for no time at all": 6}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--loads", ".9,x"), "--loads 'x': give numbers"),
        (("--loads", ".9,.9"), "--loads: 0.9 is given twice"),
        (("--estimates", "guessed"), "--estimates 'guessed'"),
        (("--warm-up", "lifo"), "no policy is named 'lifo'"),
        (("--limit", "5"), "jobs that fit on 2x4"),
    ],
)
def test_wrong_usage_is_one_line(
    traces: list[Path],
    more: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = call(monkeypatch, capsys, *words(traces, *more))
    assert code == 2
    assert err.count("\n") == 1
    assert said in err


def test_the_speeds_of_nodes_count_and_are_named(
    traces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "speeds.toml"
    cluster.write_text("[[nodes]]\ncount = 1\ngpus = 4\n[[nodes]]\ncount = 1\ngpus = 4\nspeed = 0.5\nnvlink = 2\n")

    code, out, err = call(monkeypatch, capsys, *words(traces[:1], "--clusters", str(cluster), "--markdown"))
    assert code == 0
    assert "slowdown locality, and node-speed where nodes differ in speed" in out
    assert "nvlink" in err and "--slowdown gpu-links" in err

    slow = ("--slowdown", "node-speed:sensitivity=profile")
    code, out, _ = call(monkeypatch, capsys, *words(traces[:1], "--clusters", str(cluster), "--markdown", *slow))
    assert code == 0
    assert "where nodes differ" not in out
