"""Requests that reach the controller in other ways than by its sockets: users' holds, reloads, and how preemptions by hand end."""

from __future__ import annotations

from typing import Any

from controller.base.audit import UNKNOWN, AuditLog, Caller
from controller.base.config import ControllerSettings
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.user_holds import Holds
from controller.state.preemption import Cause, Preemption

_LONGEST_REASON = 500


class AuditTrail:
    """Records each of them once. A hold that a controller finds when it starts may have been recorded by the one before."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._holds: Holds | None = None
        """Holds at the last reading; None before the first."""

    def note_holds(self, holds: Holds, snapshot: SlurmSnapshot) -> None:
        """Record the holds that have come since the last call: job_submit.lua has accepted them from the jobs' users."""
        before, self._holds = self._holds, holds
        fresh = {name for name, hold in holds.items() if before is None or before.get(name) != hold}
        if not fresh:
            return
        users = {job.key.job_id: job.user for job in snapshot.jobs}
        users |= {str(job.array_job_id): job.user for job in snapshot.jobs if job.array_job_id is not None}
        outcome = "accepted" if before is not None else "accepted, at the latest before this start of the controller"
        for job_id in sorted(fresh):
            user = users.get(job_id, "")
            details = {"time_s": round(holds[job_id].time_s, 3)}
            self._audit.record(Caller(None, user), "hold", outcome, job_id=job_id, job_user=user, details=details)

    def note_preemption(self, row: Preemption) -> None:
        """Record the end of a preemption that a user has requested."""
        if row.cause not in {Cause.OPERATOR, Cause.USER} or row.open:
            return
        problem = f": {row.problem}" if row.problem else ""
        details = {"number": row.number}
        self._audit.record(UNKNOWN, "preemption-end", f"{row.stage.value}{problem}", job_id=row.job_id, details=details)

    def note_reload(self, before: ControllerSettings, after: ControllerSettings, waiting: list[str]) -> None:
        """Record a reload. `waiting`: keys whose change needs a restart. A signal does not tell its sender."""
        changed = {
            name: [_shown(getattr(before, name)), _shown(getattr(after, name))]
            for name in ControllerSettings.model_fields
            if getattr(before, name) != getattr(after, name)
        }
        details: dict[str, Any] = {"changed": [f"{name}: {old} -> {new}" for name, (old, new) in changed.items()]}
        self._audit.record(UNKNOWN, "reload", "done", details=details | ({"need_restart": waiting} if waiting else {}))

    def note_refused_reload(self, problem: str) -> None:
        """Record a reload that changed nothing."""
        self._audit.record(UNKNOWN, "reload", f"refused: {problem}")


def _shown(value: object) -> str:
    return str(value)[:_LONGEST_REASON]
