"""A job's own page: when it waited, when it ran, and where, as a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client import Explanation, JobSummary

from controller.base.fact_text import shown_fact

WIDTH = 1000
"""Width of the timeline, in units of its drawing."""
_CLOCKS_S = 5.0
"""Difference between the times of Slurm and of the controller that means nothing, seconds."""


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
    found = [fact for name, value in sorted(explanation.facts.items()) if (fact := shown_fact(name, value))]
    times = [(fact.label, fact.time_s) for fact in found if fact.time_s is not None]
    return times, [(fact.label, fact.text) for fact in found if fact.time_s is None]
