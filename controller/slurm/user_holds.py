"""Holds that Headway has accepted from users: one file for each job, written by job_submit.lua before it accepts the hold.

Slurm does not let a user's change touch the admin comment, and a hold of a job that has priority 0 already changes nothing that
Slurm shows. Until the controller has put USER_HOLD_MARK into the job, only its file shows the hold. Controller and
watchdog look into the folder right before they release jobs, and again right after.

Invariant: a file goes only when a later snapshot shows that nothing is left to do for it, or when the user takes the hold back.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from controller.base.errors import ConfigurationError
from controller.base.lease import MOST_HOLDS
from controller.slurm.client import Failures
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK

log = structlog.get_logger(__name__)

_NAME = re.compile(r"\d{1,10}(?:_\d{1,10})?")
_NEW = ".anew"
"""Name of the file that marks a folder which was made again: holds in the former folder may be lost."""
_DRAFT = ".draft"
_MOST_READ = 10 * MOST_HOLDS
_HELD_BY_USER = "JobHeldUser"
_JOB = re.compile(rb"(\d{1,12}) (\d{1,9}) (\d{1,10})(?: ([0-9a-z]{1,16}))?\n?")
_LONGEST = 64
_CLOCK_S = 0.05
"""Time by which a file that does not tell its job may be older than the job's submit time, because of the kernel's ticks. A larger
difference means another job: a slurmctld that was killed may have lost its newest job, whose id another one has a second later."""

_START_S = 1.0
"""Slurm shows the start of a job in whole seconds."""


class Hold(NamedTuple):
    """A user's hold of one job, as its file records it."""

    time_s: float
    """When the user asked for it, seconds since the Unix epoch; the machine's clock may have been set since."""
    submit_time_s: int | None = None
    """Submit time that the job had then; None: the file does not say, as those of an earlier job_submit.lua."""
    restarts: int = 0
    """Requeues of the job until then."""
    user_id: int | None = None
    """The job's user; None: the file does not say."""
    birthmark: str = ""
    """The job's birthmark; empty: it has none, or the file does not say."""


Holds = Mapping[str, Hold]
"""Job id as users see it → the hold. "12" is for all tasks of array 12."""


class HoldFolder:
    """The folder of these files: each is named after its job, and has the job's "SUBMIT_TIME RESTARTS USER_ID BIRTHMARK", the last
    only for a job that has one. Those of earlier versions of job_submit.lua lack the birthmark, or are empty.

    Invariant: while the folder cannot be read, the holds that were read before count, less those that were removed. A hold is
    withdrawn only when a reading shows that its file is gone.
    """

    def __init__(self, path: Path) -> None:
        """The folder may be missing; then there are no holds."""
        self._path = path
        self._problem = ""
        """Why the folder cannot be read; empty while it can."""
        self._known: dict[str, Hold] | None = None
        """Holds of the last reading; None before the first. Bound: `_MOST_READ`, and the jobs with holds that `write` adds."""
        self._files: dict[str, tuple[int, int]] = {}
        """Time (ns) and inode of each file of the last reading: a file that has the same was read. Bound: `_MOST_READ`."""
        self._left: dict[str, tuple[int, int]] = {}
        """Files that could not be removed, in the same form: their holds count no more. Bound: `_MOST_READ`."""

    def make(self) -> None:
        """Make the folder, for its owner alone. Raises ConfigurationError."""
        try:
            with suppress(FileExistsError):
                self._path.mkdir(mode=0o700)
                (self._path / _NEW).touch()
            if not stat.S_ISDIR(self._path.lstat().st_mode):
                raise NotADirectoryError(f"{self._path} is a link")
        except OSError as error:
            raise ConfigurationError(f"{self._path}: cannot be made: {error}; remove what is there") from error

    def grant(self, group_id: int) -> None:
        """Let members of a group write: slurmctld's, when the controller runs as another user. Raises OSError."""
        os.chown(self._path, -1, group_id)
        self._path.chmod(0o770)

    @property
    def is_complete(self) -> bool:
        """True when a hold without a file was cancelled by its user; False when it may have been lost with the folder."""
        try:
            return all(path.name != _NEW for path in self._path.iterdir())
        except OSError:
            return False

    def completed(self) -> None:
        """Note that the jobs which were changing hands when the folder was made have been handled: the folder is complete now."""
        with suppress(OSError):  # tried again
            (self._path / _NEW).unlink(missing_ok=True)

    @property
    def room(self) -> int:
        """Number of holds that may still be recorded; the lease passes it on to job_submit.lua."""
        return max(0, MOST_HOLDS - len(self.read()))

    def read(self) -> Holds:
        """Return the recorded holds. While the folder cannot be read: those of the last reading, with one log line.

        A folder that is missing from the start has no holds.
        """
        found: dict[str, Hold] = {}
        files: dict[str, tuple[int, int]] = {}
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name) and len(found) < _MOST_READ:
                        with suppress(FileNotFoundError):  # its user has cancelled it at this moment
                            status = entry.stat(follow_symlinks=False)
                            file = (status.st_mtime_ns, status.st_ino)
                            if self._left.get(entry.name) == file:
                                self._remove_left(entry.name)
                                continue
                            files[entry.name] = file
                            found[entry.name] = self._hold(entry.name, file)
        except OSError as error:
            if self._known is None and isinstance(error, FileNotFoundError):
                return {}
            found = {**(self._known or {}), **found}
            self._note(str(error), len(found))
        else:
            self._note("", len(found))
        self._known, self._files = found, files
        return dict(found)

    def _hold(self, name: str, file: tuple[int, int]) -> Hold:
        """Return the hold of one file, which is read if it has changed."""
        if self._files.get(name) == file and self._known is not None and name in self._known:
            return self._known[name]
        match = _JOB.fullmatch(_text(self._path / name))
        time_s = file[0] / 1e9
        if match is None:
            return Hold(time_s)
        return Hold(time_s, int(match[1]), int(match[2]), int(match[3]), (match[4] or b"").decode())

    def _note(self, problem: str, holds: int) -> None:
        if problem == self._problem:
            return
        if problem:
            log.error("holds_unreadable", path=str(self._path), problem=problem, kept=holds)
        else:
            log.info("holds_readable_again", path=str(self._path), holds=holds)
        self._problem = problem

    def write(self, job_id: str, hold: Hold) -> None:
        """Record a hold, as job_submit.lua does. Raises OSError."""
        draft, path = self._path / _DRAFT, self._path / job_id
        known = hold.submit_time_s is not None and hold.user_id is not None
        words = (hold.submit_time_s, hold.restarts, hold.user_id, *([hold.birthmark] if hold.birthmark else ()))
        job = " ".join(map(str, words)) + "\n" if known else ""
        draft.unlink(missing_ok=True)  # never into a file that another program has put there
        draft.write_text(job)
        os.utime(draft, (hold.time_s, hold.time_s))
        draft.replace(path)
        if self._known is not None:
            self._known[job_id] = hold

    def remove(self, job_ids: Iterable[str]) -> int:
        """Remove holds. Returns how many of them were there. Raises OSError after it has tried all. Those that are left no longer
        count all the same, and each reading tries again."""
        removed = 0
        failed: OSError | None = None
        for job_id in job_ids:
            if self._known is not None:
                self._known.pop(job_id, None)
            try:
                (self._path / job_id).unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                failed = error
                if job_id in self._files:
                    self._left[job_id] = self._files[job_id]
            else:
                removed += 1
        if failed is not None:
            raise failed
        return removed

    def _remove_left(self, name: str) -> None:
        with suppress(OSError):
            (self._path / name).unlink()
            del self._left[name]


def _text(path: Path) -> bytes:
    """Return the beginning of a file; nothing if it is no ordinary file, or cannot be read."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(number, _LONGEST) if stat.S_ISREG(os.fstat(number).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(number)


def is_held_by_user(job: SlurmJob, holds: Holds) -> bool:
    """Return whether one of these holds is for this job, or for its whole array."""
    return bool(holds) and any(name in holds and _is_for(job, name, holds[name]) for name in _names(job))


def _names(job: SlurmJob) -> tuple[str, ...]:
    return (job.key.job_id,) if job.array_job_id is None else (job.key.job_id, str(job.array_job_id))


def _is_for(job: SlurmJob, name: str, hold: Hold) -> bool:
    """Return whether a hold with this job's id may be for it. After a crash slurmctld issues the ids of lost jobs again.

    Where job and hold have birthmarks, these tell it for certain. Otherwise: a requeue gives a job a new submit time, and counts.
    Of the tasks of an array Slurm shows only what the whole array has.
    """
    if hold.submit_time_s is None:
        return hold.time_s >= _oldest(job)
    if None not in {job.user_id, hold.user_id} and job.user_id != hold.user_id:
        return False
    if job.birthmark and hold.birthmark:
        return job.birthmark == hold.birthmark
    # A requeue counts at once, but has its submit time only once the job's processes have ended: a hold may come in between.
    least = max(1, hold.restarts) if name == job.key.job_id else 1
    return job.key.submit_time_s == hold.submit_time_s or job.restarts >= least


def _oldest(job: SlurmJob) -> float:
    """Return the earliest time of a hold for this job, where only the time can tell. Earlier ones were for another job.

    A requeue gives a job a new submit time, so a requeued job has no such limit.
    """
    return job.key.submit_time_s - _CLOCK_S if job.restarts == 0 else 0.0


def is_to_hand_over(job: SlurmJob) -> bool:
    """Return whether a job with a user's hold is not marked as the user's yet. It may be not held, or held by Headway, Slurm or
    its user."""
    if job.phase is not Phase.PENDING:
        return False
    only_its_user = not job.marks and job.reason == _HELD_BY_USER
    return not job.held or HOLD_MARK in job.marks or job.is_impossible or only_its_user


def is_between_hands(job: SlurmJob) -> bool:
    """Return whether a job still has both marks. If no file records its hold, and the folder is complete, the user released it."""
    return job.phase is Phase.PENDING and job.held and {HOLD_MARK, USER_HOLD_MARK} <= job.marks


def settled(holds: Holds, snapshot: SlurmSnapshot) -> set[str]:
    """Return the holds for which nothing is left to do: the user holds the job, it runs, or it is gone.

    `snapshot` must have been read after `holds`; jobs that it has no news of are not gone. A job that runs keeps the file of a hold
    that is for its next run: it will be held when it is requeued, and Headway must then know whose hold it is.
    """
    if not holds:
        return set()
    jobs = snapshot.jobs
    unread = snapshot.unread_of(holds)
    needed: set[str] = set(unread)
    for job in jobs:
        if unread and job.key.job_id in unread:
            needed.update(_names(job))
            continue
        if not is_held_by_user(job, holds):
            continue
        if is_to_hand_over(job):
            needed.update(_names(job))
        elif is_for_next_run(job, holds):
            needed.update((job.key.job_id,) if _has_own(job, holds) else _names(job))
    return set(holds) - needed


def own_holds(holds: Holds, jobs: Iterable[SlurmJob]) -> Holds:
    """Return the holds to record for running tasks, so that their array's hold can be removed: it would outlive releases."""
    if not holds:
        return {}
    return {
        job.key.job_id: _hold_of(job, holds[str(job.array_job_id)].time_s)
        for job in jobs
        if is_for_next_run(job, holds) and not _has_own(job, holds)
    }


def _hold_of(job: SlurmJob, time_s: float) -> Hold:
    return Hold(time_s, job.key.submit_time_s, job.restarts, job.user_id, job.birthmark)


def is_for_next_run(job: SlurmJob, holds: Holds) -> bool:
    """Return whether a hold of this running job is to hold it when it is requeued.

    Slurm shows the hold of a job that ran already. A hold that came just before the start does not show, because the release
    that was under way has ended it.
    """
    if not job.phase.occupies_nodes or not is_held_by_user(job, holds):
        return False
    # A hold of the whole array is not for a task that has started since: its user may have released that task.
    own = holds.get(job.key.job_id)
    if job.held or own is None or job.start_time_s is None:
        return job.held
    if own.submit_time_s not in {None, job.key.submit_time_s} and not _outlives_runs(job, own):
        return False
    return _has_own(job, holds) and own.time_s <= job.start_time_s + _START_S


def _outlives_runs(job: SlurmJob, hold: Hold) -> bool:
    """Return whether a hold from before the job's last requeue is certain to be the job's, and counts still.

    Had the user released the job, the file would be gone. An operator's release leaves the file, and the mark of a hold that was
    handed over to the user.
    """
    return bool(hold.birthmark) and hold.birthmark == job.birthmark and job.marks != {USER_HOLD_MARK}


def _has_own(job: SlurmJob, holds: Holds) -> bool:
    own = holds.get(job.key.job_id)
    return own is not None and _is_for(job, job.key.job_id, own)


def record_lost_reservations(folder: HoldFolder, jobs: Iterable[SlurmJob]) -> None:
    """Record a hold for each of these jobs that Slurm itself has put on hold because its reservation is over.

    A job that Headway holds would otherwise be placed outside its reservation, where Slurm alone lets it wait for its user.
    """
    for job in jobs:
        if job.has_lost_reservation and HOLD_MARK in job.marks:
            try:
                folder.write(job.key.job_id, _hold_of(job, job.key.submit_time_s))
            except OSError as error:  # tried again; until then the job is not placed
                log.warning("hold_not_recorded", job=job.key.job_id, problem=str(error))


def has_hold_recorded(job: SlurmJob) -> bool:
    """Return whether job_submit.lua records each hold of this job, also while the lease is stale."""
    return HOLD_MARK in job.marks or job.has_pin_mark


class HoldVerbs(Protocol):
    """Verbs of Slurm that `hand_over` uses."""

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs, and mark them as ours."""

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a mark."""

    async def unmark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Remove a mark."""


async def hand_over(slurm: HoldVerbs, folder: HoldFolder, jobs: Collection[SlurmJob]) -> set[JobKey]:
    """Hand pending jobs over to their users, who hold and release them. Returns the jobs that are held now.

    It may be interrupted at any point and be repeated: see `is_between_hands`. A user may cancel the hold until the job has both
    marks: from then on job_submit.lua refuses the release, so that the file shows for certain which mark to remove.
    """
    keys = [job.key for job in jobs]
    failed = await slurm.hold(keys)
    # If the user's own hold came first, only the mark is missing, or the watchdog has added it.
    own = {key for key in keys if key in failed and failed[key].not_ours}
    held = [key for key in keys if key not in failed or key in own]
    failed = await slurm.mark(held, USER_HOLD_MARK) if held else {}
    holds = folder.read()
    marked = [job for job in jobs if job.key in held and job.key not in failed]
    theirs = [job.key for job in marked if job.key in own or is_held_by_user(job, holds)]
    cancelled = [job.key for job in marked if job.key not in theirs]
    if theirs:
        await slurm.unmark(theirs, HOLD_MARK)
    if cancelled:
        await slurm.unmark(cancelled, USER_HOLD_MARK)
    return set(held)
