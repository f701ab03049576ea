"""The runs of a job: from Slurm's accounting, else from what Headway has seen. Pure functions."""

from __future__ import annotations

from typing import TypeVar

from controller.admin.explain.cycle_view import CycleView
from controller.admin.report.sources import Sources
from controller.state.given_to_slurm import GivenToSlurm
from controller.state.journal import PlacedEntry
from protos.headway.v1 import admin_pb2

T = TypeVar("T")

MOST_RUNS = 50
BY_SLURM = "Slurm"
"""Stands where the policy stands, for a run that Headway gave to Slurm to place."""
_PLACED_BEFORE_S = 3600.0
"""A decision that long before a start is not the one that led to it."""
_CLOCKS_S = 2.0


def runs_of(found: Sources, view: CycleView) -> list[admin_pb2.ReportedRun]:
    """Return the runs, oldest first."""
    runs = _accounted(found) if found.accounted else _seen(found, view)
    decisions, releases = list(found.placed), list(found.given)
    before_s = 0.0
    for run in runs:
        placed, given = _decision(decisions, run, before_s), _given(releases, run, before_s)
        # Slurm's times are whole seconds, so the last of both may seem to lie between this run and the next.
        decisions, releases = _after(decisions, placed), _after(releases, given)
        before_s = _until_s(run)
        if given is not None and (placed is None or given.time_s > placed.decision.time_s):
            run.policy, run.reason = BY_SLURM, given.why
        elif placed is not None:
            run.policy, run.reason = placed.decision.policy, placed.reason
            run.placement = placed.placement or run.placement
    return runs[-MOST_RUNS:]


def _accounted(found: Sources) -> list[admin_pb2.ReportedRun]:
    return [
        admin_pb2.ReportedRun(start_s=run.start_s, end_s=run.end_s, placement=run.nodes, slurm_state=run.state)
        for run in found.accounted
    ]


def _seen(found: Sources, view: CycleView) -> list[admin_pb2.ReportedRun]:
    """Return the runs that Headway stopped, and the last one."""
    runs = []
    started_s: float | None = None
    for row in found.stops:
        if row.stopped_s is None:
            continue
        runs.append(
            admin_pb2.ReportedRun(
                start_s=started_s, end_s=row.stopped_s, placement=",".join(row.nodes), slurm_state="PREEMPTED"
            )
        )
        started_s = row.started_s
    job, record = found.job, found.run
    if record is not None:
        if record.start_time_s is None or record.end_time_s <= record.start_time_s:
            return runs  # it was cancelled in the queue: Slurm gives it its end as the start
        runs.append(
            admin_pb2.ReportedRun(start_s=record.start_time_s, end_s=record.end_time_s, slurm_state=record.state)
        )
    elif job is not None and job.phase.occupies_nodes:
        runs.append(admin_pb2.ReportedRun(start_s=job.start_time_s, placement=view.placement(job)))
    return runs


def _after(entries: list[T], last: T | None) -> list[T]:
    """Return the entries after that one; all if there is none."""
    return entries if last is None else entries[entries.index(last) + 1 :]


def _decision(decisions: list[PlacedEntry], run: admin_pb2.ReportedRun, after_s: float) -> PlacedEntry | None:
    """Return the decision that led to a run: the last one between the run before (`after_s`) and its start, or else its end."""
    until_s = _until_s(run)
    near = [
        entry
        for entry in decisions
        if after_s < entry.decision.time_s <= until_s + _CLOCKS_S
        and (not run.HasField("start_s") or until_s - entry.decision.time_s < _PLACED_BEFORE_S)
    ]
    return near[-1] if near else None


def _given(releases: list[GivenToSlurm], run: admin_pb2.ReportedRun, after_s: float) -> GivenToSlurm | None:
    """Return the last release for Slurm to place between the run before (`after_s`) and this one; Slurm may start it much later."""
    until_s = _until_s(run) + _CLOCKS_S
    between = [given for given in releases if after_s < given.time_s <= until_s]
    return between[-1] if between else None


def _until_s(run: admin_pb2.ReportedRun) -> float:
    """Return the time before which the run was placed: its start, or else its end."""
    return run.start_s if run.HasField("start_s") else run.end_s
