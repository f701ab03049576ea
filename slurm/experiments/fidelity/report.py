"""Errors as tables, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from slurm.experiments.fidelity.accuracy import GOAL_MEAN, GOAL_WORST, PolicyError, mean_error, met, worst_error
from slurm.experiments.fidelity.fit import Fit
from slurm.experiments.fidelity.records import Isolated


def tables(fit: Fit, isolated: Sequence[Isolated], errors: Sequence[PolicyError]) -> Group:
    """Return tables of the jobs alone, and of how well they predict replays."""
    return Group(_isolated(fit, isolated), _policies(errors), _verdict(errors))


def _isolated(fit: Fit, isolated: Sequence[Isolated]) -> Table:
    table = Table(title="jobs alone")
    for heading in ("kind", "nodes", "step ms", "forward ms", "sent MB", "sending ms", "hidden", "beside steps s"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for row in isolated:
        communicate_s, overlap = fit.overlap(row)
        table.add_row(
            row.kind,
            str(row.nodes),
            f"{1e3 * row.run.step_s:.0f}",
            f"{1e3 * row.run.forward_s:.0f}",
            f"{row.bytes_per_step / 1e6:.2f}",
            f"{1e3 * communicate_s:.0f}",
            f"{overlap:.0%}" if row.nodes > 1 else "",
            f"{row.run.fixed_s:.2f}",
        )
    return table


def _policies(errors: Sequence[PolicyError]) -> Table:
    table = Table(title="average JCT, and JCT of jobs")
    table.add_column("policy")
    for heading in (
        "measured s",
        "predicted s",
        "error",
        "jobs: mean |error|",
        "jobs: worst",
        "elsewhere",
        "cores busy",
    ):
        table.add_column(heading, justify="right")
    for each in errors:
        table.add_row(
            each.policy,
            f"{each.measured_s:.1f}",
            f"{each.predicted_s:.1f}",
            f"{each.error:+.1%}",
            f"{each.mean_absolute:.1%}",
            f"{each.worst.error:+.1%} ({each.worst.name})",
            f"{each.elsewhere} of {len(each.jobs)}",
            f"{each.cpu_busy:.0%}",
        )
    return table


def _verdict(errors: Sequence[PolicyError]) -> str:
    mean, worst = mean_error(errors), worst_error(errors)
    return (
        f"average JCT over {len(errors)} policies: mean error {mean:.1%} (goal {GOAL_MEAN:.0%}), "
        f"worst {worst:.1%} (goal {GOAL_WORST:.0%}): {'met' if met(errors) else 'missed'}"
    )


def as_json(errors: Sequence[PolicyError]) -> dict[str, Any]:
    """Return the errors as JSON."""
    return {
        "mean_error": mean_error(errors),
        "worst_error": worst_error(errors),
        "goals": {"mean": GOAL_MEAN, "worst": GOAL_WORST},
        "policies": [
            {
                "policy": each.policy,
                "jobs": len(each.jobs),
                "measured_avg_jct_s": each.measured_s,
                "predicted_avg_jct_s": each.predicted_s,
                "error": each.error,
                "jobs_mean_absolute_error": each.mean_absolute,
                "jobs_worst_error": each.worst.error,
                "elsewhere": each.elsewhere,
                "cpu_busy": each.cpu_busy,
                "each_job": [asdict(job) | {"error": job.error} for job in each.jobs],
            }
            for each in errors
        ],
    }


def draw(errors: Sequence[PolicyError], path: Path) -> None:
    """Plot predicted against measured JCT: a point for each job, a panel for each policy."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fidelity", "font.family": "sans-serif"})
    from matplotlib import pyplot

    most = 1.08 * max(max(job.measured_jct_s, job.predicted_jct_s) for each in errors for job in each.jobs)
    size = (3.4 * len(errors), 4.1)
    figure, panels = pyplot.subplots(1, len(errors), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for panel, each in zip(panels[0], errors, strict=True):
        panel.plot([0, most], [0, most], color="0.55", linewidth=0.8)
        panel.fill_between([0, most], [0, 0.9 * most], [0, 1.1 * most], color="0.55", alpha=0.15, linewidth=0)
        panel.scatter(
            [job.measured_jct_s for job in each.jobs],
            [job.predicted_jct_s for job in each.jobs],
            s=18,
            color=["tab:blue" if job.same_nodes else "tab:orange" for job in each.jobs],
        )
        panel.set(xlim=(0, most), ylim=(0, most), aspect="equal", xlabel="measured JCT, s")
        panel.set_title(f"{each.policy}: average {each.error:+.1%}", fontsize=10)
    panels[0][0].set_ylabel("predicted JCT, s")
    figure.suptitle("Each point a job; band ±10 %; orange: it ran on other nodes than predicted", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
