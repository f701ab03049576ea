"""The watchdog: releases the jobs that Headway holds while the controller is away.

It shares no process with the controller; a systemd timer (or `--every`) runs it. While the lease is stale, job_submit.lua holds
no new jobs; the watchdog releases the jobs that were held before. Then it gives jobs that Slurm has requeued with the nodes of
Headway's placement their own requests back, so that none waits for a dead node. Invariant: it changes only jobs that have a mark of
ours, or those nodes, and that no user holds, only while the lease stays stale, and only in turns in which the controller changes
none (controller.base.turn).

It needs only Slurm. The journal has the own requests of pinned jobs; jobs whose requests cannot be read are released as they are.
If Slurm does not answer about one job, the others are released all the same. An unexpected error ends one check, not the
watchdog.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog

from controller.base.apart import LEFT_OUT, apart, those
from controller.base.clock import Clock
from controller.base.errors import SlurmUnavailableError, TurnLostError
from controller.base.lease import is_stale, read_lease
from controller.base.turn import Turn
from controller.daemon.watchdog.requeued import Placed, own_requests
from controller.slurm.client import Failure
from controller.slurm.left_jobs import is_held_by_headway, is_released, is_requeued_with_nodes
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import (
    HoldFolder,
    hand_over,
    is_between_hands,
    is_held_by_user,
    is_to_hand_over,
    record_lost_reservations,
)

if TYPE_CHECKING:
    from controller.slurm.client import SlurmClient
    from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob

log = structlog.get_logger(__name__)

_BATCH = 500
"""Number of jobs to release between two readings of the lease: about 8 s of slurmctld's time (15 ms for each job, measured on
22.05). The unit ends a check after ten minutes, so 100,000 held jobs may take two or three checks; each continues where the last
one ended."""
_PARTS = 4
"""Number of parts into which a batch is divided after an error."""
_FRESH_S = 5.0
"""Age above which jobs are read again before they are released: meanwhile a user may have held one, and a controller that ran for
a moment may have put that hold into the job's marks."""
_UNANSWERED = 3
"""Number of consecutive single jobs without an answer from slurmctld after which it counts as away; the next check tries
again."""
_JOURNAL_S = 20.0
"""Time limit for reading the journal, seconds: it may be on a disk that does not answer, and is not used then."""
_NAMED = 20
"""Maximum number of jobs that one line of the log names."""

Originals = Callable[[], "Mapping[JobKey, ResourceRequest]"]
"""Returns the original requests of jobs that the controller has pinned. It may raise anything, or not return."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WatchdogReport:
    """Result of one check."""

    away: bool
    """True if the controller's lease was stale, and stayed stale."""
    released: tuple[JobKey, ...] = ()
    still_held: tuple[JobKey, ...] = ()
    """Jobs held by Headway that could not be released; the next check tries again."""
    left_out: int = 0
    """Number of jobs with a mark of ours that were too many for this check, of jobs that users' texts put in doubt and that were
    not read (`SlurmSnapshot.unread`), and of unexpected errors that concerned one job; the next check tries again."""

    @property
    def complete(self) -> bool:
        """True if nothing is left for the next check."""
        return not self.still_held and not self.left_out


class Watchdog:
    """One check: if the controller is away, it releases the jobs that the controller holds.

    A lease counts as stale only when it also does not change during `confirm_s`, measured on a clock that does not jump:
    when the machine's clock is set, or the machine wakes from sleep, the newest lease of a healthy controller looks old.
    """

    def __init__(
        self,
        client: SlurmClient,
        lease_path: Path,
        originals: Originals,
        clock: Clock,
        confirm_s: float,
        turn: Turn,
        batch: int = _BATCH,
        holds: HoldFolder | None = None,
        placed: Callable[[], Placed] = dict,
    ) -> None:
        """`batch`: number of jobs to release between two readings of the lease; a controller that is back keeps the others.

        `holds`: folder of users' holds that the controller has not handed over yet. `placed` returns the request and the last pin
        of jobs that the controller has placed; it may raise anything, or not return.
        """
        self._client = client
        self._lease_path = lease_path
        self._originals = originals
        self._clock = clock
        self._confirm_s = confirm_s
        self._turn = turn
        self._batch = batch
        self._holds = holds
        self._placed = placed

    async def check(self) -> WatchdogReport:
        """Check once. Raises SlurmUnavailableError when slurmctld does not answer."""
        if not await self._away():
            return WatchdogReport(away=False)
        async with self._turn.taken():
            if not self._stale_now():
                return WatchdogReport(away=False)
            read_s, errors = self._clock.monotonic(), LEFT_OUT.number
            snapshot = await self._client.snapshot()
            jobs, left_out = snapshot.jobs, snapshot.left_out + len(snapshot.unread)
            held = _those(jobs, is_held_by_headway) + self._between_hands(jobs)
            await self._finish_releases(_those(jobs, is_released))
        released, back = await self._release_held(held, read_s)
        bound: list[SlurmJob] = []
        if not back and (requeued := _those(jobs, is_requeued_with_nodes)):
            bound, more, back = await self._unbind(requeued)
            released += more
        if back:
            return WatchdogReport(away=False, released=tuple(released))
        done = set(released)
        still = await self._still_held([job.key for job in (*held, *bound) if job.key not in done])
        left_out += LEFT_OUT.number - errors
        if still:
            log.error("still_held", jobs=_few(still), count=len(still), mend="scontrol release JOBID")
        return WatchdogReport(away=True, released=tuple(released), still_held=still, left_out=left_out)

    async def _release_held(self, held: Sequence[SlurmJob], read_s: float) -> tuple[list[JobKey], bool]:
        """Release jobs, read at that time. Returns the released ones, and whether the controller has come back."""
        if not held:
            return [], False
        log.warning("controller_away", lease=str(self._lease_path), held=len(held))
        originals = self._of_journal(self._originals, "jobs start on the nodes that Headway last chose for them")
        return await self._release_all(held, read_s, originals or {})

    async def _unbind(self, requeued: Sequence[SlurmJob]) -> tuple[list[SlurmJob], list[JobKey], bool]:
        """Give jobs that wait for the nodes of their former placement their own requests back, which Slurm allows while they are
        held. Returns the jobs that were held, those that were released, and whether the controller has come back.

        A job that is left held in between has our mark, and the next check releases it.
        """
        placed = self._of_journal(
            self._placed, "requeued jobs wait for the nodes that Headway chose for their last run"
        )
        waiting = list(own_requests(requeued, placed)) if placed else []
        bound: list[SlurmJob] = []
        released: list[JobKey] = []
        for start in range(0, len(waiting), self._batch):
            with apart("requeued jobs of the watchdog", waiting[start].job_id):
                try:
                    async with self._turn.taken():
                        if not self._stale_now():
                            return bound, released, True
                        # They were read before other jobs were released, so they are read again.
                        jobs = await self._client.read(waiting[start : start + self._batch])
                        requests = own_requests(jobs.values(), placed or {})
                        failures = await self._client.hold(list(requests)) if requests else {}
                except TurnLostError as error:
                    log.info(
                        "controller_changes_jobs", reason=str(error), effect="the next check looks at the jobs again"
                    )
                    return bound, released, True
                batch = [jobs[key] for key in requests if key not in failures]
                bound += batch
                more, back = await self._release_all(batch, -math.inf, requests)
                released += more
                if back:
                    return bound, released, True
        return bound, released, False

    async def _release_all(
        self, held: Sequence[SlurmJob], read_s: float, originals: Mapping[JobKey, ResourceRequest]
    ) -> tuple[list[JobKey], bool]:
        """Release jobs, read at that time, in batches. Returns the released ones, and whether the controller has come back.

        After an error the jobs of the batch are read again: a part of it may have been carried out, such as the handing over of
        a job to its user.
        """
        released: list[JobKey] = []
        batches = deque((held[start : start + self._batch], read_s) for start in range(0, len(held), self._batch))
        unanswered = 0
        others_turns = False
        while batches:
            batch, batch_read_s = batches.popleft()
            try:
                async with self._turn.taken() as other_had_one:
                    others_turns |= other_had_one
                    if not self._stale_now():
                        log.info("controller_back", left_held=len(batch) + sum(len(batch) for batch, _ in batches))
                        return released, True
                    fresh = not others_turns and self._clock.monotonic() - batch_read_s <= _FRESH_S
                    released += await (self._release_batch if fresh else self._read_and_release)(batch, originals)
                unanswered = 0
            except TurnLostError as error:
                log.info("controller_changes_jobs", reason=str(error), effect="the next check looks at the jobs again")
                return released, True
            except Exception as error:  # no error of one batch may keep the other jobs held
                log.error(
                    "batch_failed",
                    jobs=_few([job.key for job in batch]),
                    count=len(batch),
                    problem=f"{type(error).__name__}: {error}",
                )
                if len(batch) > 1:
                    size = -(-len(batch) // _PARTS)
                    parts = [(batch[at : at + size], -math.inf) for at in range(0, len(batch), size)]
                    batches.extendleft(reversed(parts))
                elif isinstance(error, SlurmUnavailableError):
                    unanswered += 1
                    if unanswered >= _UNANSWERED:
                        raise
        return released, False

    async def _read_and_release(
        self, jobs: Sequence[SlurmJob], originals: Mapping[JobKey, ResourceRequest]
    ) -> list[JobKey]:
        """Read the jobs again, and release those that are still to be released. Returns the released ones, those before too."""
        found = list((await self._client.read([job.key for job in jobs])).values())
        released_before = await self._finish_release([job for job in found if is_released(job)])
        held = [job for job in found if is_held_by_headway(job)] + self._between_hands(found)
        return released_before + await self._release_batch(held, originals)

    def _stale_now(self) -> bool:
        return is_stale(read_lease(self._lease_path), self._clock.now())

    async def _away(self) -> bool:
        first = read_lease(self._lease_path)
        if not is_stale(first, self._clock.now()):
            return False
        await self._clock.sleep(self._confirm_s)
        second = read_lease(self._lease_path)
        return second == first and is_stale(second, self._clock.now())

    def _of_journal(self, take: Callable[[], _T], without: str) -> _T | None:
        """Read the journal in a thread, because a file system that does not answer would block for ever. Waits for a while.

        Returns None if it cannot be read; the log then has the effect of that.
        """
        found: list[_T] = []
        problem = "it did not answer in time"

        def read() -> None:
            nonlocal problem
            try:
                found.append(take())
            except BaseException as error:  # noqa: BLE001 - the caller logs it
                problem = f"{type(error).__name__}: {str(error)[:200]}"

        thread = threading.Thread(target=read, name="journal", daemon=True)
        thread.start()
        thread.join(_JOURNAL_S)
        if found:
            return found[0]
        log.error("journal_not_readable", problem=problem, effect=without)
        return None

    async def _release_batch(
        self, jobs: Sequence[SlurmJob], originals: Mapping[JobKey, ResourceRequest]
    ) -> list[JobKey]:
        """Restore the own requests of pinned jobs, release the jobs, and remove the mark. Returns the released jobs.

        Jobs that their users hold are handed over to them instead. A hold may come between the reading of the folder and the
        release, so jobs whose users hold them by then, and that have not started, are held again right after the release.
        """
        if not jobs:
            return []
        keys = [job.key for job in jobs]
        # Slurm's own hold of an impossible job would end with the first change of the job.
        await self._hold([job.key for job in jobs if job.is_impossible])
        pinned = {key: originals[key] for key in keys if key in originals}
        unusable = await self._unpin(pinned) if pinned else set()
        theirs: set[JobKey] = set()
        # Handing over takes several calls, in which other users may hold theirs: the folder is read until it shows none.
        while more := await self._hand_over([job for job in jobs if job.key not in theirs]):
            theirs |= more
        ready = [key for key in keys if key not in unusable and key not in theirs]
        released_by_users = {job.key for job in jobs if USER_HOLD_MARK in job.marks}
        await self._unmark([key for key in ready if key in released_by_users], USER_HOLD_MARK)
        try:
            failures = await self._client.release(ready)
        except SlurmUnavailableError:  # it may have been carried out all the same
            await self._hold_again(jobs, ready)
            raise
        problems = {key: failure.message for key, failure in failures.items() if not failure.gone}
        if problems:
            log.error("release_failed", jobs=_few(problems), count=len(problems), problem=next(iter(problems.values())))
        late = await self._hold_again(jobs, [key for key in ready if key not in failures])
        released = [key for key in ready if key not in failures and key not in late]
        # The mark is removed last, because a held job without it would never be found again.
        await self._unmark(released, HOLD_MARK, unless_held=True)
        placed = {job.key for job in jobs if job.has_pin_mark}
        await self._unmark([key for key in released if key in placed], PIN_MARK)
        log.warning("released", jobs=_few(released), count=len(released), own_request_back=len(pinned) - len(unusable))
        return released

    async def _hold(self, keys: Sequence[JobKey]) -> None:
        failures = await self._client.hold(keys) if keys else {}
        if failures:
            problem = next(iter(failures.values())).message
            log.error("hold_failed", jobs=_few(failures), count=len(failures), problem=problem)

    async def _unmark(self, keys: Sequence[JobKey], mark: str, instead: str = "", *, unless_held: bool = False) -> None:
        left = await self._client.unmark(keys, mark, instead, unless_held=unless_held) if keys else {}
        if left:
            log.warning("mark_left", jobs=_few(left), count=len(left), problem=next(iter(left.values())).message)

    async def _hand_over(self, jobs: Sequence[SlurmJob]) -> set[JobKey]:
        """Hand over those of these jobs that their users hold, or that Slurm holds without their reservation. Returns them."""
        if self._holds is not None:
            record_lost_reservations(self._holds, jobs)
        holds = self._holds.read() if self._holds is not None else {}
        theirs = [job for job in jobs if is_held_by_user(job, holds)]
        if theirs and self._holds is not None:
            await hand_over(self._client, self._holds, theirs)
            log.warning("left_to_users", jobs=[job.key.job_id for job in theirs])
        return {job.key for job in theirs}

    def _between_hands(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return the jobs that a controller left with both marks, if the folder shows which mark is true."""
        found = _those(jobs, is_between_hands)
        if not found or self._holds is None:
            return []
        holds = self._holds.read()
        return found if self._holds.is_complete else [job for job in found if is_held_by_user(job, holds)]

    async def _hold_again(self, before: Iterable[SlurmJob], released: Sequence[JobKey]) -> set[JobKey]:
        """Hold the jobs that their users held while they were released, and that have not started. Returns them.

        `before`: the jobs as they were read before the release. A controller that is back may have handed a job over meanwhile:
        then no file is left of the hold, and the job has got the mark of its user.
        """
        if self._holds is None or not (self._holds.read() or not self._stale_now()):
            return set()
        found = [job for job in (await self._client.read(released)).values() if is_to_hand_over(job)]
        theirs = await self._hand_over(found)
        marked = {job.key for job in before if USER_HOLD_MARK in job.marks}
        undone = [
            job.key
            for job in found
            if USER_HOLD_MARK in job.marks and not job.held and job.key not in theirs and job.key not in marked
        ]
        await self._hold(undone)
        await self._unmark(undone, HOLD_MARK)
        return theirs | set(undone)

    async def _unpin(self, pinned: Mapping[JobKey, ResourceRequest]) -> set[JobKey]:
        """Return the jobs that must not be released: their request could not be restored, and the present one has fewer GPUs.

        A job that still requests all its GPUs is better started on its chosen nodes than left held. So is a job that cannot be
        read.
        """
        try:
            failures = {key: why for key, why in (await self._client.unpin(pinned)).items() if not why.gone}
            found = await self._client.read(list(failures)) if failures else {}
        except Exception as error:
            if len(pinned) > 1 or isinstance(error, SlurmUnavailableError):
                raise
            failures, found = dict.fromkeys(pinned, Failure(f"{type(error).__name__}: {error}")), {}
        unusable = set()
        for key, failure in failures.items():
            job = found.get(key)
            if job is not None and job.request.least_gpus != pinned[key].least_gpus:
                unusable.add(key)
            log.error("own_request_not_restored", job=key.job_id, problem=failure.message, released=key not in unusable)
        return unusable

    async def _finish_releases(self, released: Sequence[SlurmJob]) -> None:
        """Finish the releases of a process that ended before it had removed the marks."""
        for start in range(0, len(released), self._batch):
            try:
                await self._finish_release(released[start : start + self._batch])
            except Exception as error:  # noqa: BLE001 - it must not prevent the release of held jobs
                log.warning("marks_left", count=len(released) - start, problem=f"{type(error).__name__}: {error}")
                return

    async def _finish_release(self, released: Sequence[SlurmJob]) -> list[JobKey]:
        """Remove the mark from jobs that are released, because a later hold is their user's, not ours. Returns their keys.

        A release that ended early may not have looked for holds that came while it was under way (`_hold_again`): Slurm does not
        show these. Such jobs are handed over to their users instead, and are not among the returned.
        """
        theirs = await self._hand_over(released)
        done = [job for job in released if job.key not in theirs]
        # A job that names nodes may be pinned: Slurm may still find it impossible there, and put it on hold.
        for instead, bound in (("", False), (PIN_MARK, True)):
            keys = [job.key for job in done if bool(job.request.required_nodes) is bound]
            await self._unmark(keys, HOLD_MARK, instead, unless_held=True)  # a controller may be back
        return [job.key for job in done]

    async def _still_held(self, keys: Sequence[JobKey]) -> tuple[JobKey, ...]:
        if not keys:
            return ()
        found = await self._client.read(keys)
        return tuple(job.key for job in _those([found[key] for key in keys if key in found], is_held_by_headway))


def _those(jobs: Iterable[SlurmJob], test: Callable[[SlurmJob], bool]) -> list[SlurmJob]:
    """Return the jobs for which the test is true. One that leads to an unexpected error counts as left out."""
    return those("jobs of the watchdog", jobs, test, lambda job: job.key.job_id)


def _few(keys: Iterable[JobKey]) -> list[str]:
    """Return the ids of the first jobs, for the log."""
    return [key.job_id for key, _ in zip(keys, range(_NAMED), strict=False)]
