"""Waiting jobs for which running ones save, so that those may train on when none of these waits any more.

A job may take minutes to save. Meanwhile the user of the waiting job may cancel or hold it, or it may start on other nodes. The
stop would then help no job, and cost one its place.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from controller.base.errors import JournalError
from controller.cycle.decision.plan import Plan
from controller.observe.observer import Observation
from controller.observe.role import Obstacle
from controller.preempt.budget import leaves
from controller.preempt.manager import PreemptionManager
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.preemption import EndReason, Preemption

log = structlog.get_logger(__name__)

_HELD = frozenset({Obstacle.USER_HOLD, Obstacle.OPERATOR_HOLD})


class Purposes:
    """Invariant: a preemption is called off only if it was begun for waiting jobs, none of which waits any more.

    Purposes are in memory: after a restart of the controller, what is under way is continued.
    """

    def __init__(self, preemptions: PreemptionManager) -> None:
        self._preemptions = preemptions
        self._of: dict[int, set[JobKey]] = {}
        """Waiting jobs by the number of the preemption. Bound: the open preemptions, and the jobs that wait."""

    def add(self, begun: Preemption, needed_by: JobKey) -> None:
        """Note the waiting job for which a preemption was begun."""
        self._of.setdefault(begun.number, set()).add(needed_by)

    def note(self, plan: Plan, observation: Observation) -> None:
        """Note for which jobs the present plan needs the stops that are under way.

        One that the plan wants for no waiting job is not called off later.
        """
        for group in plan.groups if self._of else ():
            jobs = [observation.rows[row] for row in group.rows]
            saving = [row for job in jobs if (row := self._under_way(job)) is not None]
            if group.needed_by is None:
                for row in saving:
                    self._of.pop(row.number, None)
            elif all(job.phase is not Phase.RUNNING or self._under_way(job) is not None for job in jobs):
                # If one of them stays, this job does not start, whatever becomes of the others.
                for row in saving:
                    if row.number in self._of:
                        self.add(row, observation.rows[group.needed_by].key)

    def call_off_useless(self, observation: Observation) -> None:
        """Call off the preemptions that no waiting job needs, where the job has not been stopped yet."""
        if not self._of:
            return
        under_way = {row.number for row in self._preemptions.open.values() if row.stopped_s is None}
        wait = _waiting(set().union(*self._of.values()), observation)
        self._of = {number: keys & wait for number, keys in self._of.items() if number in under_way}
        try:
            for number in [number for number, keys in self._of.items() if not keys]:
                self._preemptions.call_off(number, EndReason.NOT_NEEDED)
        except JournalError as error:  # it stays as it was, and the next cycle tries again
            log.error("preemption_not_recorded", problem=str(error))

    def _under_way(self, job: SlurmJob) -> Preemption | None:
        row = self._preemptions.open.get(job.raw_id or 0)
        return row if leaves(job, row) else None


def _waiting(keys: Collection[JobKey], observation: Observation) -> set[JobKey]:
    """Return those of these jobs that wait, or may wait: Slurm's text may have hidden a job."""
    unread = observation.snapshot.unread_of(key.job_id for key in keys)
    wait = {key for key in keys if key.job_id in unread}
    for job in observation.snapshot.jobs if keys else ():
        if job.key in keys and job.phase is Phase.PENDING:
            standing = observation.standings.get(job.key)
            if standing is None or standing.obstacle not in _HELD:
                wait.add(job.key)
    return wait
