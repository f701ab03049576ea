"""Hands jobs over to their users, who want to hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from controller.base.errors import SlurmError
from controller.cycle.steps.own_requests import OwnRequests
from controller.cycle.steps.verbs import JournaledVerbs
from controller.slurm.client import Failures, SlurmClient
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import (
    HoldFolder,
    hand_over,
    is_held_by_user,
    is_to_hand_over,
    record_lost_reservations,
)


class HandOver:
    """Hands jobs over to their users. Invariant: no job is released whose user holds it."""

    def __init__(
        self, client: SlurmClient, verbs: JournaledVerbs, holds: HoldFolder, own_requests: OwnRequests
    ) -> None:
        self._client = client
        self._verbs = verbs
        self._holds = holds
        self._own_requests = own_requests

    async def hand_over(self, jobs: Iterable[SlurmJob]) -> set[JobKey]:
        """Hand over the jobs whose users hold them, or that Slurm holds without their reservation, and that were not handed over
        yet. Returns these jobs."""
        jobs = list(jobs)
        record_lost_reservations(self._holds, jobs)
        holds = self._holds.read()
        theirs = [job for job in jobs if is_held_by_user(job, holds) and is_to_hand_over(job)] if holds else []
        if theirs:
            await self._make_theirs(theirs)
        return {job.key for job in theirs}

    async def finish(self, keys: Sequence[JobKey]) -> None:
        """Complete an interrupted `hand_over` of these jobs, whose holds are not in the folder now."""
        failed = (
            await self._verbs.unmark(keys, USER_HOLD_MARK if self._holds.is_complete else HOLD_MARK) if keys else {}
        )
        if not failed:
            self._holds.completed()

    async def release(self, jobs: Mapping[JobKey, SlurmJob], why: Mapping[JobKey, str]) -> tuple[Failures, set[JobKey]]:
        """Release jobs, except those whose users hold them. Returns the failures, and the jobs that were handed over.

        A hold may come between reading the folder and the release. So the folder is read again right after the release, and a
        job that has not started by then is held again.
        """
        theirs: set[JobKey] = set()
        # A hand-over takes several calls, and meanwhile other users may hold their jobs: the folder is read until it has no new
        # hold.
        while more := await self.hand_over(jobs[key] for key in why if key not in theirs):
            theirs |= more
        free = {key: text for key, text in why.items() if key not in theirs}
        if not free:
            return {}, theirs
        failed = await self._verbs.release(free)
        holds = self._holds.read()
        late = [key for key in free if is_held_by_user(jobs[key], holds)]
        if late:
            with suppress(SlurmError):  # the next cycle tries again
                found = (await self._client.read(late)).values()
                theirs |= await self._make_theirs([job for job in found if is_to_hand_over(job)])
        return {key: failure for key, failure in failed.items() if key not in theirs}, theirs

    async def _make_theirs(self, jobs: Sequence[SlurmJob]) -> set[JobKey]:
        """Hand over these jobs. Returns those that are held now; the others have been started, or Slurm does not answer."""
        held = await hand_over(self, self._holds, jobs)
        await self._own_requests.undo_pins(dict.fromkeys(held, ("its user holds it", False)))
        return held

    # --- verbs for controller.slurm.user_holds.hand_over

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold jobs for their users, at first with our mark."""
        return await self._verbs.hold(dict.fromkeys(keys, "its user holds it"))

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add one of our marks."""
        return await self._verbs.mark(keys, mark)

    async def unmark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Remove one of our marks."""
        return await self._verbs.unmark(keys, mark)
