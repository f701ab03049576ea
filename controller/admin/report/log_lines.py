"""A job's report as a few lines for the end of its own log: what only the controller knows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from controller.base.text import clock_time, count, duration, gpu_hours, three_digits
from protos.headway.v1 import admin_pb2

_MOST_STOPS = 3
_LONGEST = 400
"""Longest line that agents pass on, in characters."""


def log_lines(found: admin_pb2.JobSummary) -> list[str]:
    """Return the lines, of at most 400 characters; those about which nothing is known are left out."""
    return [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..." for line in _lines(found)]


def _lines(found: admin_pb2.JobSummary) -> Iterator[str]:
    parts = ", ".join(f"{duration(wait.wait_s)} {wait.why}" for wait in found.waits if wait.wait_s >= 1)
    yield f"the job waited {duration(found.wait_s)}" + (f": {parts}" if parts else "")
    stops = list(found.stops)
    costs = [stop.cost_s for stop in stops if stop.HasField("cost_s")]
    if stops:
        cost = f", of which {len(costs)} cost {duration(sum(costs))}" if costs else ""
        last = f"; the last {_MOST_STOPS}" if len(stops) > _MOST_STOPS else ""
        yield f"{count(len(stops), 'stop')}{cost}{last}:"
    for stop in stops[-_MOST_STOPS:]:
        yield _stop(stop)
    if found.HasField("contention_loss"):
        yield f"it lost {found.contention_loss:.0%} of its speed to jobs beside it"
    if used := _used(found):
        yield used
    if found.hint:
        yield f"hint: {found.hint}"


def _stop(stop: admin_pb2.ReportedStop) -> str:
    step = f" at step {stop.step}" if stop.HasField("step") else ""
    cost = f", {duration(stop.cost_s)}" if stop.HasField("cost_s") else ""
    problem = f"; {stop.problem}" if stop.problem else ""
    return f"- {clock_time(stop.time_s)} by {stop.cause}{step}{cost}: {stop.why}{problem}"


def _used(found: admin_pb2.JobSummary) -> str:
    parts = [gpu_hours(found.gpu_hours)] if found.HasField("gpu_hours") else []
    if parts and found.HasField("idle_gpu_hours"):
        parts.append(f"{three_digits(found.idle_gpu_hours)} of them without a process of it on the GPU")
    if found.HasField("energy_kwh"):
        parts.append(f"{three_digits(found.energy_kwh)} kWh of its GPUs")
    return f"it has used {', '.join(parts)}" if parts else ""
