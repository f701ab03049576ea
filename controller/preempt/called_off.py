"""What is left of preemptions that were called off: ranks that may stand still yet, and marks on jobs that run on."""

from __future__ import annotations

from controller.agents.commands import AgentCommands
from controller.base.clock import Clock
from controller.preempt.attempt import PreemptionAttempt
from controller.slurm.client import HOLD_MARK, JobKey, Phase, SlurmSnapshot
from controller.state.preemption import Preemption, PreemptionMethod, Stage
from controller.state.preemption_table import PreemptionTable

_ASKED_BEFORE_S = 7200.0
"""What is called off was asked for within that time: to save takes an hour at most, and so does it to stop it."""
_MARK_WATCH_S = 3600.0
"""A mark that a job was given to be stopped is looked for if that was called off so long before the controller was started."""


class CalledOff:
    """Invariant: a mark is taken off a job only if Slurm has shown it running, as the run that was to be stopped."""

    def __init__(self, table: PreemptionTable, clock: Clock) -> None:
        """Also of those that a controller before has called off."""
        self._table = table
        self._clock = clock
        self.marked: tuple[JobKey, ...] = ()
        """Jobs that run on, and have the mark that they were given to be stopped: the cycle takes it off."""
        self._left = {_key(row) for row in self._lately(_MARK_WATCH_S)}

    def add(self, row: Preemption) -> None:
        """Somebody may have marked it."""
        self._left.add(_key(row))

    def look(self, snapshot: SlurmSnapshot, open_: frozenset[int]) -> None:
        """Find the marks. `open_`: Slurm's own numbers of jobs that are to be stopped anew."""
        running = [job for job in snapshot.jobs if job.key in self._left and job.phase is Phase.RUNNING]
        self._left = {job.key for job in running}
        self.marked = tuple(job.key for job in running if HOLD_MARK in job.marks and job.raw_id not in open_)

    def say_go_on(self, commands: AgentCommands, quiesce_s: float, now: float) -> None:
        """To those that may stand still yet: what was said when it was called off may not have got through. `now`: monotonic."""
        now_s = self._clock.now()
        for row in self._lately(quiesce_s):
            if row.attempt and row.way is PreemptionMethod.CHECKPOINT:
                left = quiesce_s - max(now_s - (row.ended_s or now_s), 0.0)
                PreemptionAttempt(row, deadline=now).go_on(commands, now + left)

    def _lately(self, within_s: float) -> list[Preemption]:
        now_s = self._clock.now()
        asked = self._table.since(now_s - within_s - _ASKED_BEFORE_S)
        return [row for row in asked if row.stage is Stage.CALLED_OFF and now_s - (row.ended_s or 0.0) < within_s]


def _key(row: Preemption) -> JobKey:
    return JobKey(row.job_id, row.submit_time_s)
