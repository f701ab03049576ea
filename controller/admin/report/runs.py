"""The runs of a job: from Slurm's accounting, else from what Headway has seen. Pure functions."""

from __future__ import annotations

from controller.admin.explain.cycle_view import CycleView
from controller.admin.report.sources import Sources
from controller.state.journal import PlacedEntry
from protos.headway.v1 import admin_pb2

MOST_RUNS = 50
_PLACED_BEFORE_S = 3600.0
"""A decision that long before a start is not the one that led to it."""
_CLOCKS_S = 2.0


def runs_of(found: Sources, view: CycleView) -> list[admin_pb2.ReportedRun]:
    """Return the runs, oldest first."""
    runs = _accounted(found) if found.accounted else _seen(found, view)
    for run in runs:
        placed = _decision(found, run)
        if placed is not None:
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
    if record is not None and record.start_time_s is not None:
        runs.append(
            admin_pb2.ReportedRun(start_s=record.start_time_s, end_s=record.end_time_s, slurm_state=record.state)
        )
    elif job is not None and job.phase.occupies_nodes:
        runs.append(admin_pb2.ReportedRun(start_s=job.start_time_s, placement=view.placement(job)))
    return runs


def _decision(found: Sources, run: admin_pb2.ReportedRun) -> PlacedEntry | None:
    """Return the decision that led to a run: the last one before its start, or else before its end."""
    until_s = run.start_s if run.HasField("start_s") else run.end_s
    near = [
        entry
        for entry in found.placed
        if entry.decision.time_s <= until_s + _CLOCKS_S
        and (not run.HasField("start_s") or until_s - entry.decision.time_s < _PLACED_BEFORE_S)
    ]
    return near[-1] if near else None
