"""A job's own page: when it waited, when it ran, and where, as a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client import Explanation, JobSummary

from controller.base.text import duration

WIDTH = 1000
"""Width of the timeline, in units of its drawing."""
_CLOCKS_S = 5.0
"""Difference between the times of Slurm and of the controller that means nothing, seconds."""
_DATED = ("_time_s", "_start_s", "_since_s")
_HIDDEN = frozenset({"snapshot_digest", "snapshot_sequence", "snapshot_time_s"})


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the timeline."""

    x: int
    width: int
    kind: str
    """waits, runs, or earlier: both, where no source lists the earlier runs."""
    begin_s: float
    end_s: float | None
    """None: it lasts."""
    text: str


def timeline(report: JobSummary, now_s: float) -> list[Span]:
    """Return the spans in which the job waited and ran, oldest first; none where its submission is not known."""
    begin_s = report.submit_time_s
    last_s = max(report.end_time_s or now_s, begin_s + 1.0)
    if begin_s <= 0:
        return []

    def span(kind: str, start_s: float, end_s: float | None, text: str) -> Span:
        left = round((max(start_s, begin_s) - begin_s) / (last_s - begin_s) * WIDTH)
        right = round((min(end_s or last_s, last_s) - begin_s) / (last_s - begin_s) * WIDTH)
        return Span(left, max(right - left, 2), kind, start_s, end_s, text)

    found: list[Span] = []
    reached_s = begin_s
    listed_s = sum((run.end_s or now_s) - run.start_s for run in report.runs if run.start_s is not None)
    unlisted = report.service_s > listed_s + _CLOCKS_S
    for run in report.runs:
        if run.start_s is None:
            continue
        if run.start_s > reached_s:
            kind = "earlier" if unlisted and not found else "waits"
            found.append(span(kind, reached_s, run.start_s, kind))
        found.append(span("runs", run.start_s, run.end_s, run.placement))
        reached_s = run.end_s or last_s
    if reached_s < last_s and report.state != "ended":
        found.append(span("waits", reached_s, None, "waits"))
    return found


def facts(explanation: Explanation) -> tuple[list[tuple[str, float]], list[tuple[str, str]]]:
    """Return the facts that are times, seconds since the Unix epoch, and the others, with names and values for people."""
    times, others = [], []
    for name, value in sorted(explanation.facts.items()):
        if name in _HIDDEN or not value:
            continue
        time_s = _number(value) if name.endswith(_DATED) and name != "wait_time_s" else None
        if time_s is not None and time_s > 1e8:
            times.append((_called(name.removesuffix("_s")), time_s))
        else:
            others.append(_shown(name, value))
    return times, others


def _shown(name: str, value: str) -> tuple[str, str]:
    """Return name and value of a fact that is no time, in the words of the other pages."""
    seconds = _number(value)
    if name == "gpu_s" and seconds is not None:
        return "GPU time", f"{seconds / 3600.0:.1f} GPU hours"
    if name.endswith("_steps_per_s"):
        return _called(name.removesuffix("_steps_per_s")), f"{value} steps/s"
    if name.endswith("_s") and seconds is not None:
        return _called(name.removesuffix("_s")), duration(seconds)
    return _called(name), value


def _called(name: str) -> str:
    """Return the name of a fact as words."""
    return name.replace("_", " ")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
