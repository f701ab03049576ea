"""The final table and a fair verdict."""

from __future__ import annotations

import json
from dataclasses import replace

from rich.console import Console

from slurm.demo.display.history import JobResult, RunResult
from slurm.demo.display.summary import as_json, print_summary, verdict


def job(label: str, wait_s: float, jct_s: float | None, state: str = "COMPLETED") -> JobResult:
    return JobResult(label, "-N2 --gres=gpu:4", "1", state, (("n1", 4), ("n2", 4)), "best fit", wait_s, jct_s)


def run(scheduler: str, *jobs: JobResult, makespan_s: float | None = 60.0) -> RunResult:
    return RunResult(scheduler, jobs, makespan_s)


def test_the_better_one_is_named_with_the_figures() -> None:
    ours = run("Headway", job("a", 1, 10), job("b", 2, 20))
    theirs = run("Slurm", job("a", 5, 20), job("b", 5, 40))

    first, second, third = verdict(ours, theirs)

    assert first.startswith("Headway was better: jobs were done 50% sooner on average (mean JCT 15 s against 30 s")
    assert second == "All jobs were done after 60 s; with Slurm alone, after 60 s."
    assert third == "No job was done later than with Slurm."


def test_when_slurm_was_better_it_says_so() -> None:
    sentences = verdict(run("Headway", job("a", 9, 40)), run("Slurm", job("a", 1, 20)))

    assert sentences[0].startswith("Slurm was better this time: jobs were done 50% sooner")
    assert sentences[-1] == "1 of 1 jobs were done later than with Slurm, a most, by 20 s."


def test_small_differences_are_none() -> None:
    sentences = verdict(run("Headway", job("a", 1, 20.1)), run("Slurm", job("a", 1, 20)))

    assert sentences[0].startswith("No clear difference this time")


def test_a_better_average_names_the_job_that_paid_for_it() -> None:
    ours = run("Headway", job("small", 0, 5), job("large", 50, 90))
    theirs = run("Slurm", job("small", 60, 100), job("large", 0, 30))

    assert verdict(ours, theirs)[-1] == "1 of 2 jobs were done later than with Slurm, large most, by 60 s."


def test_a_job_that_shared_its_links_is_named() -> None:
    ours = run("Headway", replace(job("a", 1, 10), step_ms=66.0), replace(job("b", 1, 10), step_ms=200.0))
    theirs = run("Slurm", replace(job("a", 1, 10), step_ms=198.0), replace(job("b", 1, 10), step_ms=210.0))

    assert "A training step of a took 66 ms with Headway and 198 ms with Slurm alone" in verdict(ours, theirs)[-1]


def test_similar_step_times_are_not_mentioned() -> None:
    ours = run("Headway", replace(job("a", 1, 10), step_ms=200.0))
    theirs = run("Slurm", replace(job("a", 1, 10), step_ms=220.0))

    assert "step" not in " ".join(verdict(ours, theirs))


def test_runs_with_failed_jobs_are_not_compared() -> None:
    ours = run("Headway", job("a", 1, 10, state="FAILED"))

    (sentence,) = verdict(ours, run("Slurm", job("a", 1, 10)))

    assert sentence == "Not every job completed (Headway), so the two runs cannot be compared."


def test_json_has_every_job_twice_and_is_json() -> None:
    ours, theirs = run("Headway", job("a", 1, 10)), run("Slurm", job("a", 5, 20.123))

    found = json.loads(json.dumps(as_json(ours, theirs, {"cluster": "real"})))

    assert found["cluster"] == "real"
    assert found["jobs"][0]["job"] == "a"
    assert found["jobs"][0]["headway"]["gpus"] == {"n1": 4, "n2": 4}
    assert found["jobs"][0]["slurm"]["jct_s"] == 20.12
    assert found["headway"]["mean_jct_s"] == 10
    assert found["verdict"].startswith("Headway was better")


def render(width: int) -> str:
    console = Console(width=width, record=True, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    with console.file:
        print_summary(console, run("Headway", job("bert-a", 1, 10)), run("Slurm", job("bert-a", 5, 20)))
        return console.export_text()


def test_wide_tables_carry_the_reasons_and_narrow_ones_list_them_below() -> None:
    wide, narrow = render(140), render(90)

    assert "why there" in wide
    assert "Why there:" in narrow
    for text in (wide, narrow):
        assert "best fit" in text
        assert "n[1-2]:4" in text
        assert "mean" in text
        assert all(len(line.rstrip()) <= 140 for line in text.splitlines())


def test_a_narrow_table_still_shows_every_number() -> None:
    text = render(88)

    assert "10 s" in text
    assert "20 s" in text
    assert "--gres=gpu:4" in text
