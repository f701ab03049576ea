"""Everything that is known of one job, gathered for its report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from controller.admin.explain.cycle_view import CycleView
from controller.admin.report.job_notes import JobNotes
from controller.admin.report.same_job import CLOCKS_S, REQUEUED_S, begin_s, own_runs
from controller.admin.report.speed import Speed, speed_of
from controller.admin.viewer import Viewer
from controller.base.errors import SlurmError
from controller.profiles.reader import ProfileStoreError
from controller.slurm.accounting import AccountedRun, Accounting, keeps_accounting
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.given_to_slurm import GivenToSlurm
from controller.state.job_note_table import JobNote
from controller.state.journal import Journal, PlacedEntry, RunRecord
from controller.state.preemption import Preemption

_MOST_STOPS = 1000


@dataclass(frozen=True, slots=True)
class Sources:
    """All that is known of one job."""

    job_id: str
    now_s: float
    job: SlurmJob | None
    """The job as Slurm shows it; None: Slurm has forgotten it."""
    run: RunRecord | None
    """Its end, as the journal has it; None: it has not ended, or the record is too old."""
    first_submit_s: float
    is_first: bool = False
    """True if `first_submit_s` is known to be the first: the job was never requeued, or the ledger has its first submission."""
    notes: tuple[JobNote, ...] = ()
    """Oldest first; without those that are only in memory."""
    waits_s: dict[str, float] = field(default_factory=dict)
    """Time that it has waited by reason, seconds."""
    placed: tuple[PlacedEntry, ...] = ()
    """Decisions on it, oldest first."""
    given: tuple[GivenToSlurm, ...] = ()
    """Its releases for Slurm to place, oldest first."""
    stops: tuple[Preemption, ...] = ()
    """Its preemptions, oldest first."""
    steps: int | None = None
    speed: Speed | None = None
    energy_j: float | None = None
    """Energy of its GPUs, joules; None: no agent has read a counter of them."""
    accounted: tuple[AccountedRun, ...] = ()
    missing: tuple[str, ...] = ()
    """A sentence for each source that could not be read."""

    @property
    def user(self) -> str:
        """The user whose job it is."""
        return self.job.user if self.job is not None else self.run.user if self.run is not None else ""


def known(viewer: Viewer, view: CycleView, job_id: str) -> Sources | None:
    """Return what the last snapshot and the journal's record of its end have; None when neither knows the job."""
    controller = viewer.controller
    job = view.find(job_id)
    run = controller.journal.last_run(job_id)
    if job is None and run is None:
        return None
    if job is not None and run is not None and run.key != job.key:
        run = None  # an earlier job with the same id
    key = job.key if job is not None else run.key if run is not None else None
    served = None if key is None else controller.ledger.served.get(key)
    submit_s = float(0 if key is None else key.submit_time_s)
    first_s = submit_s if served is None else float(served.first_submit_s)
    is_first = served is not None or (job is not None and job.restarts == 0)
    return Sources(job_id, controller.clock.now(), job, run, first_s, is_first)


async def gather(viewer: Viewer, found: Sources, notes: JobNotes | None, accounting: Accounting | None) -> Sources:
    """Return the sources with everything else. Raises JournalError."""
    controller = viewer.controller
    missing: list[str] = []
    accounted = own_runs(
        await _accounted(viewer, found.job_id, accounting, missing),
        found.user,
        found.first_submit_s if found.is_first else None,
    )
    raw_id = _raw_id(found, accounted)
    journal = controller.journal
    stops = _stops(journal, found, accounted, raw_id)
    # An ended job has no entry in the ledger: its first submission is the oldest that a source has.
    first_s = min(
        [found.first_submit_s, *(run.submit_s for run in accounted), *(float(row.submit_time_s) for row in stops)]
    )
    since_s = first_s - CLOCKS_S
    kept = journal.job_notes.of_job(found.job_id, since_s)
    first_s = min([first_s, *(float(note.key.submit_time_s) for note in kept)])
    waits_s = _waits(kept, found, notes)
    return replace(
        found,
        first_submit_s=first_s,
        notes=tuple(kept),
        waits_s=waits_s,
        placed=tuple(journal.decisions_of_id(found.job_id, since_s)[::-1]),
        given=tuple(journal.given_to_slurm.of_id(found.job_id, since_s)),
        stops=tuple(row for row in stops if row.asked_s >= since_s),
        steps=_steps(viewer, found, kept),
        speed=await _speed(viewer, raw_id, since_s, missing) if _has_run(found, accounted) else None,
        energy_j=await _energy_j(viewer, raw_id, since_s),
        accounted=tuple(accounted),
        missing=tuple(missing),
    )


def _has_run(found: Sources, accounted: list[AccountedRun]) -> bool:
    """Return whether the job has run, or runs: only then has it a speed."""
    job = found.job
    return bool(accounted) or job is None or job.restarts > 0 or job.phase is not Phase.PENDING


def _stops(journal: Journal, found: Sources, accounted: list[AccountedRun], raw_id: int | None) -> list[Preemption]:
    """Return the preemptions of this job, oldest first."""
    if raw_id is None:
        return []
    since_s = begin_s(found.first_submit_s, found.run, accounted, is_first=found.is_first)
    if since_s is None:
        since_s = journal.end_of_earlier(found.job_id, found.first_submit_s - REQUEUED_S)
    rows = journal.preemptions.of_job(raw_id, _MOST_STOPS)[::-1]
    return [row for row in rows if row.submit_time_s >= since_s - CLOCKS_S]


def _raw_id(found: Sources, accounted: list[AccountedRun]) -> int | None:
    """Return Slurm's own number of the job; None for a task of an array that has been forgotten."""
    if found.job is not None and found.job.raw_id is not None:
        return found.job.raw_id
    if accounted:
        return accounted[-1].raw_id
    return int(found.job_id) if found.job_id.isdecimal() else None


def _waits(kept: list[JobNote], found: Sources, notes: JobNotes | None) -> dict[str, float]:
    """Return the time by reason: that of earlier runs from the journal, and of the present one from memory."""
    key = None if found.job is None else found.job.key
    present = {} if notes is None or key is None else notes.waits_of(key)
    parts = [note.waits_s for note in kept if not present or note.key != key]
    total: dict[str, float] = {}
    for part in (*parts, present):
        for why, time_s in part.items():
            total[why] = total.get(why, 0.0) + time_s
    return total


def _steps(viewer: Viewer, found: Sources, kept: list[JobNote]) -> int | None:
    """Return the steps as they are now, or else by the newest note: a run that ended without saving them has lost some."""
    now = None if found.job is None else viewer.controller.preemptions.steps_done(found.job)
    noted = next((note.steps for note in reversed(kept) if note.steps is not None), None)
    return noted if now is None else now


async def _accounted(
    viewer: Viewer, job_id: str, accounting: Accounting | None, missing: list[str]
) -> list[AccountedRun]:
    facts = viewer.controller.facts
    if accounting is None or facts is None or not keeps_accounting(facts.settings):
        return []
    try:
        return await accounting.runs(job_id)
    except SlurmError as error:
        missing.append(f"Slurm's accounting could not be read: {error}")
        return []


async def _speed(viewer: Viewer, raw_id: int | None, since_s: float, missing: list[str]) -> Speed | None:
    """Return the speed; without one, a sentence in `missing` has the reason."""
    measurement = viewer.measurement
    if measurement is None:
        missing.append("its speed is not known: no node agents report to this controller")
        return None
    if raw_id is None:
        missing.append("its speed is not known: Slurm no longer knows its SLURM_JOB_ID")
        return None
    try:
        found = await measurement.read(partial(speed_of, raw_id=raw_id, since_s=since_s))
    except ProfileStoreError as error:
        missing.append(f"its speed is not known: {error}")
        return None
    if found is None:
        missing.append("its speed is not known: no whole window of its training was measured, or that was too long ago")
    elif found.loss is None:
        missing.append("what it lost to jobs beside it is not known: its speed alone was never measured")
    return found


async def _energy_j(viewer: Viewer, raw_id: int | None, since_s: float) -> float | None:
    """Return the energy of its GPUs since then, joules; None: not known, which is no fault: many GPUs have no counter."""
    if viewer.measurement is None or raw_id is None:
        return None
    try:
        return await viewer.measurement.read(lambda store: store.energy_j(raw_id, since_s))
    except ProfileStoreError:
        return None  # `_speed` has reported it
