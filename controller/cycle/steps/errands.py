"""Changes in Slurm for preemptions: stops and signals jobs, and removes marks that are no longer true."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from controller.base.apart import apart
from controller.cycle.steps.verbs import JournaledVerbs
from controller.preempt.manager import PreemptionManager
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.state.preemption import Preemption, Stage

_USER_SIGNAL = "USR1"


class PreemptionErrands:
    """Carries out the preemption manager's orders. Invariant: the manager gets a report of every order, or `orders_over`."""

    def __init__(self, verbs: JournaledVerbs, preemptions: PreemptionManager) -> None:
        self._verbs = verbs
        self._preemptions = preemptions

    async def run(self) -> bool:
        """Stop the jobs that have saved, and signal those that requeue themselves. Returns whether Slurm has changed anything.

        It may be called between two cycles too, because it needs no snapshot.
        """
        stops, signals = self._preemptions.orders()
        done = False
        try:
            if stops:
                # The ranks of the others train on, and their jobs may end at any moment.
                paused = {row.key for row in stops if row.stage is Stage.SAVED}
                failed = await self._verbs.requeue_hold(_reasons(stops), paused=paused)
                for row in stops:
                    with apart("preemptions", row.job_id):
                        self._preemptions.stopped(row, failed.get(row.key))
                done = len(failed) < len(stops)
            if signals:
                failed = await self._verbs.signal(_reasons(signals), _USER_SIGNAL)
                for row in signals:
                    with apart("preemptions", row.job_id):
                        self._preemptions.signalled(row, failed.get(row.key))
                done = done or len(failed) < len(signals)
        finally:
            self._preemptions.orders_over()
        return done


class JobMarks:
    """Removes marks from running jobs. Invariant: if Slurm did not answer a removal, the next cycle tries it again."""

    def __init__(self, verbs: JournaledVerbs, preemptions: PreemptionManager) -> None:
        self._verbs = verbs
        self._preemptions = preemptions
        self._started: set[JobKey] = set()
        """Jobs that have started, and may still have a mark from before. Bound: the jobs that Headway schedules."""

    async def clear_called_off(self) -> None:
        """Remove the mark from jobs that were to be stopped and run on, because a later hold is not Headway's."""
        await self._verbs.unmark(self._preemptions.called_off.marked)

    def note_started(self, started: Collection[SlurmJob]) -> None:
        """Let the next `clear_started` remove marks from these jobs too, also if this cycle ends before it."""
        self._started.update(job.key for job in started)

    async def clear_started(self, jobs: Mapping[JobKey, SlurmJob]) -> None:
        """Remove marks that are no longer true from jobs that have started. `jobs`: all jobs that Headway schedules."""
        # Also when no removal succeeds for weeks, because the journal cannot be written.
        self._started = {key for key in self._started if key in jobs}
        running = [job for key in self._started if (job := jobs.get(key)) is not None and job.phase.occupies_nodes]
        placed = [job.key for job in running if job.has_pin_mark]
        # The user released the job between two snapshots, so a later hold would not be covered by this mark.
        released = [job.key for job in running if USER_HOLD_MARK in job.marks and not job.held]
        # A job that is to be stopped may have got its mark just now; `clear_called_off` removes the marks of stops that were
        # called off.
        to_stop = {raw_id for raw_id, row in self._preemptions.open.items() if row.stopped_s is None}
        marked = [job for job in running if HOLD_MARK in job.marks and not job.held and job.raw_id not in to_stop]
        ours = [job.key for job in marked if job.key not in self._preemptions.called_off.marked]
        failed = {
            **await self._verbs.unmark(placed, PIN_MARK),
            **await self._verbs.unmark(released, USER_HOLD_MARK),
            **await self._verbs.unmark(ours, HOLD_MARK),
        }
        # A hold of Headway that came just after the start. The mark shows that it is not the user's, until the hold ends.
        held = {job.key for job in running if job.held and job.marks == {HOLD_MARK}}
        self._started = {key for key, failure in failed.items() if failure.unavailable} | held


def _reasons(rows: Collection[Preemption]) -> dict[JobKey, str]:
    return {row.key: f"preemption {row.number}: {row.why}" for row in rows}
