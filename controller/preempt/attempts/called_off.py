"""Cleaning up after preemptions that were called off: ranks that may still be paused, and marks on jobs that run on."""

from __future__ import annotations

from controller.agents.commands import AgentCommands
from controller.base.clock import Clock
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK
from controller.state.preemption import Preemption, PreemptionMethod, Stage
from controller.state.preemption_table import PreemptionTable

_ASKED_BEFORE_S = 7200.0
"""Longest time from a request to its end, seconds: the save and the stop take at most an hour each."""
_MARK_WATCH_S = 3600.0
"""Time before the controller's start within which a preemption that was called off may have left its mark, seconds."""


_MAY_CHANGE = frozenset({Phase.RUNNING, Phase.SUSPENDED})


class CalledOff:
    """Invariant: a mark is removed from a job only if Slurm has shown it running, as the run that was to be stopped, and not held.

    Only the mark shows that a hold of a running job is Headway's: a hold that came just after its start. Without it the job would
    wait for its user after its next requeue. A hold of its user has a file, by which the job is handed over then.
    """

    def __init__(self, table: PreemptionTable, clock: Clock) -> None:
        """Includes preemptions that an earlier controller has called off."""
        self._table = table
        self._clock = clock
        self.marked: tuple[JobKey, ...] = ()
        """Jobs that run on and still have the mark from the stop; the cycle removes it."""
        self._left = {row.key for row in self._lately(_MARK_WATCH_S)}
        """Jobs that may still have the mark. Bound: those that run on, or were not read; `update` drops the others."""

    def add(self, row: Preemption) -> None:
        """Look for a mark on the job of this preemption."""
        self._left.add(row.key)

    def update(self, snapshot: SlurmSnapshot, open_: frozenset[int]) -> None:
        """Find the marks. `open_`: Slurm's own numbers of jobs with another preemption under way."""
        running = [job for job in snapshot.jobs if job.key in self._left and job.phase.occupies_nodes]
        unread = snapshot.unread_of(key.job_id for key in self._left)
        self._left = {job.key for job in running} | {key for key in self._left if key.job_id in unread}
        free = [job for job in running if job.phase in _MAY_CHANGE and not job.held and job.raw_id not in open_]
        self.marked = tuple(job.key for job in free if HOLD_MARK in job.marks)

    def repeat_go_on(self, commands: AgentCommands, quiesce_s: float, now: float) -> None:
        """Let ranks train on that may still be paused, because an earlier command may have been lost. `now`: monotonic."""
        now_s = self._clock.now()
        for row in self._lately(quiesce_s):
            if row.attempt and row.way is PreemptionMethod.CHECKPOINT:
                left = quiesce_s - max(now_s - (row.ended_s or now_s), 0.0)
                PreemptionAttempt(row, deadline=now).go_on(commands, now + left)

    def _lately(self, within_s: float) -> list[Preemption]:
        now_s = self._clock.now()
        rows = self._table.since(now_s - within_s - _ASKED_BEFORE_S)
        return [row for row in rows if row.stage is Stage.CALLED_OFF and now_s - (row.ended_s or 0.0) < within_s]
