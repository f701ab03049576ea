"""Defects in what happens to users' holds.

Each function puts one of them back for as long as its context lasts. What they do is described as in the reviews.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from controller.cycle.steps.hand_over import HandOver
from controller.observe import role
from controller.slurm import user_holds
from controller.slurm.embedded.client import EmbeddedClient, with_mark, without_mark
from controller.slurm.embedded.ctld import commands
from controller.slurm.embedded.ctld.plugin import SubmitPlugin
from controller.slurm.embedded.view import job_view
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.updates.changes import held_by_others
from controller.slurm.user_holds import Hold, Holds
from tests.birthmarks import without_birthmark
from tests.campaign.verdict.defects.patches import patched


def mark_fails_hold_forgotten() -> AbstractContextManager[None]:
    """A user's hold is forgotten once it has been read, whether or not the job was marked."""
    real = HandOver.hand_over

    async def hand_over(self: HandOver, jobs: Any) -> Any:
        found = list(jobs)
        try:
            return await real(self, found)
        finally:
            self._holds.remove(list(self._holds.read()))

    return patched(patch.object(HandOver, "hand_over", hand_over))


def hold_while_placed_dropped() -> AbstractContextManager[None]:
    """A hold that comes while jobs are placed is not looked for, neither before the release nor after it."""

    async def release(self: HandOver, jobs: Any, why: Any) -> Any:
        return await self._verbs.release(why), set()

    return patched(patch.object(HandOver, "release", release))


def hold_only_wakes() -> AbstractContextManager[None]:
    """The plugin reports a user's hold through the wake pipe alone: without a reader it is lost."""
    real = SubmitPlugin.__init__

    def init(self: SubmitPlugin, lease: Any, wake: Any = None, holds: Any = None) -> None:
        del holds
        real(self, lease, wake, None)

    return patched(patch.object(SubmitPlugin, "__init__", init))


def every_hold_is_of_requeued_jobs() -> AbstractContextManager[None]:
    """Any hold file counts as a hold of every job that was requeued."""

    def is_held_by_user(job: SlurmJob, holds: Holds) -> bool:
        oldest_s = job.key.submit_time_s - 2.0 if job.restarts == 0 else 0.0
        return bool(holds) and any(holds.get(name, Hold(0.0)).time_s >= oldest_s for name in user_holds._names(job))

    real, real_own = user_holds.is_held_by_user, user_holds.own_holds

    def own_holds(holds: Holds, jobs: Any) -> Holds:
        return real_own(holds, [job for job in jobs if real(job, holds)])

    return patched(
        patch("controller.cycle.hold_files.own_holds", own_holds),
        patch.object(user_holds, "is_held_by_user", is_held_by_user),
        patch("controller.cycle.steps.hand_over.is_held_by_user", is_held_by_user),
    )


def users_cannot_release() -> AbstractContextManager[None]:
    """Headway holds a job as an operator does, so that a user's own hold of that job can never be ended."""

    def hold(self: EmbeddedClient, job: Any) -> Any:
        if job.phase is not Phase.PENDING:
            return commands.NOT_PENDING
        if job_view(job).is_held_by_others:
            return held_by_others(job_view(job))
        comment = without_mark(job.admin_comment, PIN_MARK)
        return commands.hold(job) or self._comment(job, with_mark(comment, HOLD_MARK))

    return patched(patch.object(EmbeddedClient, "_hold", hold))


def both_marks_left() -> AbstractContextManager[None]:
    """A job whose hand-over to its user was interrupted keeps both marks."""

    async def finish(self: HandOver, keys: Any) -> None:
        return None

    return patched(patch.object(HandOver, "finish", finish))


def unmarked_holds_are_ours() -> AbstractContextManager[None]:
    """A held job without a mark counts as held by Headway."""
    real = role._held

    def held(job: SlurmJob, *, may_begin: bool) -> Any:
        if USER_HOLD_MARK in job.marks or HOLD_MARK in job.marks:
            return real(job, may_begin=may_begin)
        return role.WAITING if may_begin else None

    return patched(
        patch.object(role, "_held", held), patch.object(SlurmJob, "is_held_by_others", property(lambda self: False))
    )


def watchdog_frees_users_jobs() -> AbstractContextManager[None]:
    """The watchdog releases every held job with a mark of Headway, also jobs that users hold."""

    def held(job: SlurmJob) -> bool:
        return job.phase.value == "pending" and job.held and "headway:" in without_birthmark(job.admin_comment)

    return patched(
        patch("controller.daemon.watchdog.watchdog.is_held_by_headway", held),
        patch.object(
            SlurmJob, "is_held_by_others", property(lambda self: False)
        ),  # the clients' check is of a later time
    )


def users_hold_overridden() -> AbstractContextManager[None]:
    """A job that its user has held since it was last read is marked, placed and released like any other.

    As it was then, a hold is recorded only where Headway holds the job: the file alone would keep the hold.
    """
    real = SubmitPlugin.on_user_hold

    def on_user_hold(self: SubmitPlugin, job: Any, now_s: float) -> str | None:
        return real(self, job, now_s) if HOLD_MARK in job.admin_comment.split() else None

    return patched(
        patch.object(SlurmJob, "is_held_by_others", property(lambda self: False)),
        patch.object(SubmitPlugin, "on_user_hold", on_user_hold),
    )
