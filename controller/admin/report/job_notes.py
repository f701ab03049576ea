"""Notes on jobs that only the running controller can make: why each waits, for how long, and how many steps it has made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from controller.admin.explain.wait_reason import OTHER, reason_of
from controller.base.apart import apart
from controller.base.errors import JournalError
from controller.cycle.view.result import CycleResult
from controller.observe.role import Role
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.job_note_table import JobNote, JobNoteTable

log = structlog.get_logger(__name__)

_MOST_REASONS = 8
"""Reasons of one job; the time of further ones counts as `OTHER`."""
_LONGEST_S = 120.0
"""Time between two cycles that is counted at most: a controller that was away did not see why jobs waited."""
_SAVE_EVERY_S = 600.0
_SAVED_AT_ONCE = 500
"""Jobs that wait or run, and whose notes one cycle writes: a few milliseconds."""

Steps = Callable[[SlurmJob], int | None]
"""Returns the steps that a job has done; None: not known."""


class JobNotes:
    """Makes the notes after each cycle, and writes those of jobs that have started or ended; of others every ten minutes.

    Invariant: there are notes in memory of the jobs in Slurm alone. If the journal cannot be written, the next save may write them.
    """

    def __init__(self, table: JobNoteTable, steps_done: Steps) -> None:
        self._table = table
        self._steps_done = steps_done
        self._waits: dict[JobKey, dict[str, float]] = {}
        """Time that each job has waited since its submission or requeue, by reason, in seconds.
        Bound: the jobs in Slurm."""
        self._steps: dict[JobKey, int] = {}
        """Steps that each job has made. Bound: the jobs in Slurm."""
        self._unsaved: set[JobKey] = set()
        """Jobs whose notes have changed since they were written. Bound: the jobs in Slurm."""
        self._before_s: float | None = None
        self._saved_s = 0.0
        self._due: list[JobKey] = []
        """Jobs that are neither starting nor ending, and whose notes the next cycles write.
        Bound: the jobs in Slurm at the last save."""

    def waits_of(self, key: JobKey) -> dict[str, float]:
        """Return why that job has waited, in seconds by reason."""
        return dict(self._waits.get(key, {}))

    def note(self, result: CycleResult) -> None:
        """Take the result of a cycle: for the listeners of the controller."""
        observation = result.observation
        now_s = observation.snapshot.time_s
        if self._before_s is None:
            self._load(key for key, found in observation.standings.items() if found.role is not Role.ENDED)
        passed_s = min(max(now_s - (self._before_s or now_s), 0.0), _LONGEST_S)
        self._before_s = now_s
        for key, found in observation.standings.items():
            with apart("notes on jobs", key.job_id):
                if found.role is Role.RUNNING:
                    self._note_steps(key, observation.jobs[key])
                elif (why := reason_of(found)) and passed_s:
                    self._note_wait(key, why, passed_s)
        changes = result.changes
        done = {job.key for job in (*changes.started, *changes.ended)} | {former.key for former, _ in changes.requeued}
        gone = set(changes.gone)
        if now_s - self._saved_s > _SAVE_EVERY_S:
            self._saved_s, self._due = now_s, list(self._unsaved)
            # Also those that went in a cycle that failed: it called no listener.
            gone |= (self._waits.keys() | self._steps.keys()) - observation.jobs.keys()
        self._save(done.union(self._due[:_SAVED_AT_ONCE]), now_s)
        del self._due[:_SAVED_AT_ONCE]
        self._forget(gone)

    def _load(self, keys: Iterable[JobKey]) -> None:
        """Go on from the notes of the controller before."""
        try:
            for key in keys:
                if (note := self._table.find(key)) is not None:
                    self._waits[key] = dict(note.waits_s)
                    if note.steps is not None:
                        self._steps[key] = note.steps
        except JournalError as error:
            log.warning("job_notes_not_read", problem=str(error))

    def _note_steps(self, key: JobKey, job: SlurmJob) -> None:
        steps = self._steps_done(job)
        if steps is not None and steps != self._steps.get(key):
            self._steps[key] = steps
            self._unsaved.add(key)

    def _note_wait(self, key: JobKey, why: str, passed_s: float) -> None:
        waits = self._waits.setdefault(key, {})
        name = why if why in waits or len(waits) < _MOST_REASONS else OTHER
        waits[name] = waits.get(name, 0.0) + passed_s
        self._unsaved.add(key)

    def _save(self, keys: set[JobKey], now_s: float) -> None:
        kept = [key for key in keys if key in self._waits or key in self._steps]
        try:
            self._table.save(JobNote(key, now_s, self._waits.get(key, {}), self._steps.get(key)) for key in kept)
        except JournalError as error:  # the journal reports it too, and ends what depends on it
            log.warning("job_notes_not_written", problem=str(error))
        else:
            self._unsaved.difference_update(kept)

    def _forget(self, gone: set[JobKey]) -> None:
        for key in gone:
            self._waits.pop(key, None)
            self._steps.pop(key, None)
        self._unsaved -= gone
