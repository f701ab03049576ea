"""Summary of the demonstration: both runs side by side, and sentences that compare them."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slurm.demo.display.history import JobResult, RunResult
from slurm.demo.display.view import where

_NOTHING = "-"
_WIDE = 132
"""Smallest width of a terminal on which the table has a column of reasons."""
_SLOWED = 1.3
"""Factor between step times from which a sentence mentions the job."""
_ALIKE = 0.03
"""Relative difference below which means are called equal (0.03 = 3 %)."""


def summary_table(ours: RunResult, theirs: RunResult, *, with_reasons: bool) -> Table:
    """Return a table with one row per job, and means at the bottom."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", border_style="dim", show_footer=True, footer_style="bold")
    table.add_column("\njob", footer="mean", no_wrap=True)
    table.add_column("\nasks for", no_wrap=True)
    table.add_column("Headway\nnodes:GPUs", style="cyan", header_style="bold cyan", no_wrap=True)
    _add_times(table, ours)
    if with_reasons:
        table.add_column("\nwhy there", style="dim", overflow="fold")
    table.add_column("Slurm\nnodes:GPUs", style="magenta", header_style="bold magenta", no_wrap=True)
    _add_times(table, theirs)
    for mine, other in zip(ours.jobs, theirs.jobs, strict=True):
        table.add_row(
            Text(mine.label),
            Text(mine.request),
            *_outcome(mine, other),
            *([Text(mine.why)] if with_reasons else []),
            *_outcome(other, mine),
        )
    return table


def _add_times(table: Table, run: RunResult) -> None:
    table.add_column("\nwait", footer=_seconds(run.mean_wait_s), justify="right", no_wrap=True)
    table.add_column("\nJCT", footer=_seconds(run.mean_jct_s), justify="right", no_wrap=True)


def _outcome(job: JobResult, beside: JobResult) -> tuple[Text, Text, Text]:
    return Text(where(job.gpus)), Text(_seconds(job.wait_s)), _jct(job, beside)


def _jct(job: JobResult, beside: JobResult) -> Text:
    """Return the job completion time, green when clearly better; the state of a job that did not complete."""
    if not job.completed:
        return Text(job.state.lower() or "not run", style="bold red")
    better = beside.jct_s is not None and job.jct_s is not None and job.jct_s < beside.jct_s * (1 - _ALIKE)
    return Text(_seconds(job.jct_s), style="green" if better else "")


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.0f} s"


def verdict(ours: RunResult, theirs: RunResult) -> list[str]:
    """Return sentences that compare both runs: means, makespan, jobs that ended later, slowed steps."""
    broken = [run.scheduler for run in (ours, theirs) if not run.completed]
    if broken:
        return [f"Not every job completed ({', '.join(broken)}), so the two runs cannot be compared."]
    sentences = [_on_means(ours, theirs)]
    if ours.makespan_s is not None and theirs.makespan_s is not None:
        sentences.append(
            f"All jobs were done after {ours.makespan_s:.0f} s; with Slurm alone, after {theirs.makespan_s:.0f} s."
        )
    sentences.extend(_on_later_jobs(ours, theirs))
    sentences.extend(_on_steps(ours, theirs))
    return sentences


def _on_means(ours: RunResult, theirs: RunResult) -> str:
    mine, other = ours.mean_jct_s, theirs.mean_jct_s
    assert mine is not None and other is not None, "runs that completed have means"
    figures = f"mean JCT {mine:.0f} s against {other:.0f} s, mean wait {ours.mean_wait_s:.0f} s against {theirs.mean_wait_s:.0f} s"
    if abs(mine - other) <= _ALIKE * other:
        return f"No clear difference this time: {figures}."
    if mine < other:
        return f"{ours.scheduler} was better: jobs were done {1 - mine / other:.0%} sooner on average ({figures})."
    return (
        f"{theirs.scheduler} was better this time: jobs were done {1 - other / mine:.0%} sooner on average ({figures})."
    )


def _on_later_jobs(ours: RunResult, theirs: RunResult) -> list[str]:
    """Return a sentence about the jobs that ended later than with Slurm."""
    pairs = [
        (mine.jct_s - other.jct_s, mine.label)
        for mine, other in zip(ours.jobs, theirs.jobs, strict=True)
        if mine.jct_s is not None and other.jct_s is not None
    ]
    later = [pair for pair in pairs if pair[0] > 1.0]
    if not later:
        return ["No job was done later than with Slurm."]
    worst_s, worst = max(later)
    return [f"{len(later)} of {len(pairs)} jobs were done later than with Slurm, {worst} most, by {worst_s:.0f} s."]


def _on_steps(ours: RunResult, theirs: RunResult) -> list[str]:
    """Return a sentence about the job whose steps differ most; empty when none differs clearly."""
    slowed = [
        (max(mine.step_ms, other.step_ms) / min(mine.step_ms, other.step_ms), mine.label, mine.step_ms, other.step_ms)
        for mine, other in zip(ours.jobs, theirs.jobs, strict=True)
        if mine.step_ms and other.step_ms
    ]
    if not slowed or max(slowed)[0] < _SLOWED:
        return []
    _, label, mine_ms, other_ms = max(slowed)
    return [
        f"A training step of {label} took {mine_ms:.0f} ms with Headway and {other_ms:.0f} ms with Slurm alone: "
        "the placement decides whether a job uses the network, and which jobs share its links."
    ]


def as_json(ours: RunResult, theirs: RunResult, facts: dict[str, Any]) -> dict[str, Any]:
    """Return everything that the table shows, and the facts of the run."""
    return facts | {
        "jobs": [
            {
                "job": mine.label,
                "request": mine.request,
                "headway": _job_json(mine),
                "slurm": _job_json(other),
            }
            for mine, other in zip(ours.jobs, theirs.jobs, strict=True)
        ],
        "headway": _run_json(ours),
        "slurm": _run_json(theirs),
        "verdict": " ".join(verdict(ours, theirs)),
    }


def _job_json(job: JobResult) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "state": job.state,
        "gpus": dict(job.gpus),
        "why": job.why,
        "wait_s": _rounded(job.wait_s),
        "jct_s": _rounded(job.jct_s),
        "step_ms": _rounded(job.step_ms),
    }


def _run_json(run: RunResult) -> dict[str, Any]:
    return {
        "scheduler": run.scheduler,
        "completed": run.completed,
        "mean_wait_s": _rounded(run.mean_wait_s),
        "mean_jct_s": _rounded(run.mean_jct_s),
        "makespan_s": _rounded(run.makespan_s),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def print_summary(console: Console, ours: RunResult, theirs: RunResult) -> None:
    """Print table and verdict; on a narrow terminal the reasons are below the table."""
    wide = console.width >= _WIDE
    console.print(summary_table(ours, theirs, with_reasons=wide))
    if not wide:
        reasons = Table(box=None, padding=(0, 2, 0, 1), show_header=False)
        for job in ours.jobs:
            reasons.add_row(Text(job.label), Text(job.why or _NOTHING, style="dim"))
        console.print(Text(" Why there:", style="bold"), reasons, "", sep="\n")
    for sentence in verdict(ours, theirs):
        console.print(sentence, highlight=False, markup=False)
