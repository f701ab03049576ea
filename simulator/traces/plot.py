"""A trace as a picture: sizes, durations, submits by hour, load over time. The only module of traces that needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import TraceError
from simulator.traces.describe import SIZE_CLASSES, describe, size_class
from simulator.traces.trace import NS_PER_S, Trace

COLOURS = ("#2f6690", "#d1603d", "#5b8e7d", "#7d5ba6")
GREY = "#5f6b76"
MOST_BARS = 12


def plot(trace: Trace, path: Path, cluster_gpus: int | None = None) -> None:
    """Draw four panels into a picture, whose format follows the file's suffix (.png, .svg, .pdf). Raises TraceError."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        mend = "pip install 'headway-scheduler[sim]'"
        raise TraceError("a plot needs the package matplotlib", mend=mend) from None
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    span = (trace.submit_ns[-1] - trace.submit_ns[0]) / NS_PER_S / 86_400
    figure.suptitle(f"{trace.name}: {len(trace):,} jobs, {span:,.1f} days", fontsize=13, x=0.01, ha="left")
    _plot_sizes(axes[0][0], trace)
    _plot_durations(axes[0][1], trace)
    _plot_hours(axes[1][0], trace)
    _plot_load(axes[1][1], trace, cluster_gpus)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(colors=GREY, labelsize=9)
        panel.grid(axis="y", color="#e6e9ec", linewidth=0.8)
        panel.set_axisbelow(True)
    try:
        figure.savefig(path, dpi=140)
    except (OSError, ValueError) as error:
        mend = "give a path in a folder that exists, ending in .png, .svg or .pdf"
        raise TraceError(f"the plot cannot be written: {error}", mend=mend, path=path) from error


def _plot_sizes(panel: Any, trace: Trace) -> None:
    sizes = sorted(sorted(describe(trace).sizes, key=lambda each: -each.jobs)[:MOST_BARS], key=lambda each: each.gpus)
    at = np.arange(len(sizes))
    panel.bar(at - 0.2, [100 * each.jobs_share for each in sizes], 0.4, color=COLOURS[0], label="of jobs")
    panel.bar(at + 0.2, [100 * each.work_share for each in sizes], 0.4, color=COLOURS[1], label="of GPU time")
    panel.set_xticks(at, [str(each.gpus) for each in sizes])
    _named(panel, "Sizes", "GPUs a job", "share, %")
    panel.legend(frameon=False, fontsize=9)


def _plot_durations(panel: Any, trace: Trace) -> None:
    for (least, most), colour in zip(SIZE_CLASSES, COLOURS, strict=True):
        seconds = np.sort(trace.duration_ns[(trace.num_gpus >= least) & (trace.num_gpus <= most)] / NS_PER_S)
        if len(seconds):
            share = np.arange(1, len(seconds) + 1) / len(seconds)
            label = f"{size_class(least, most)} GPU{'' if most == 1 else 's'} ({len(seconds):,})"
            panel.step(seconds, share, where="post", color=colour, linewidth=1.8, label=label)
    panel.set_xscale("log")
    marks = {1: "1 s", 60: "1 min", 3600: "1 h", 86_400: "1 d", 864_000: "10 d"}
    low, high = panel.get_xlim()
    panel.set_xticks([mark for mark in marks if low <= mark <= high], [marks[m] for m in marks if low <= m <= high])
    panel.minorticks_off()
    _named(panel, "Run times", "run time alone", "share of jobs")
    panel.legend(frameon=False, fontsize=9, loc="lower right")


def _plot_hours(panel: Any, trace: Trace) -> None:
    panel.bar(range(24), describe(trace).submits_by_hour, 0.8, color=COLOURS[0])
    panel.set_xticks(range(0, 24, 3))
    _named(panel, "Submits by hour of the day", "hours since time 0 of the trace, of 24", "jobs")


def _plot_load(panel: Any, trace: Trace, cluster_gpus: int | None) -> None:
    """Plot the work that arrives, in bins of a fiftieth of the span."""
    hours = trace.submit_ns / NS_PER_S / 3600
    work = trace.num_gpus * (trace.duration_ns / NS_PER_S / 3600)
    bins = np.linspace(hours[0], max(hours[-1], hours[0] + 1), 51)
    arriving, _ = np.histogram(hours, bins=bins, weights=work)
    wanted = arriving / np.diff(bins)
    days = bins / 24
    panel.stairs(wanted / (cluster_gpus or 1), days, fill=True, color=COLOURS[0], alpha=0.75)
    if cluster_gpus:
        panel.axhline(1, color=COLOURS[1], linewidth=1.4)
        _named(panel, f"Load offered to {cluster_gpus:,} GPUs", "days", "requested GPUs / GPUs of the cluster")
    else:
        _named(panel, "Work that arrives", "days", "GPUs needed to keep up")


def _named(panel: Any, title: str, below: str, beside: str) -> None:
    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xlabel(below, color=GREY, fontsize=9)
    panel.set_ylabel(beside, color=GREY, fontsize=9)
