"""Rights of the callers of status.sock to change something: jobs of their own, within the operator's budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from controller.admin.access import Access, private_refusal
from controller.admin.protocol import ADMIN_SOCKET, Reason
from controller.admin.refusal import CallRefused
from controller.admin.viewer import Viewer
from controller.base.audit import Caller
from controller.base.errors import JournalError
from controller.preempt.budget import HOUR_S
from controller.preempt.user_budget import UserBudget
from controller.slurm.model.job import SlurmJob


def admin_only(what: str, more: str = "") -> CallRefused:
    """Return the refusal of a call that only admin.sock takes."""
    return CallRefused(
        Reason.ADMIN_ONLY, f"only root and the controller's user may {what}, through {ADMIN_SOCKET}{more}"
    )


class UserRights:
    """Invariant: a user is never allowed more changes within an hour than `user_changes_per_hour`, over all restarts."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._controller = viewer.controller

    def check_allowed(self, what: str) -> None:
        """Raise CallRefused where users may change nothing at all."""
        if not self._controller.settings.user_changes_per_hour:
            raise admin_only(
                what, "; the operator has set user_changes_per_hour = 0, so users may not change their own"
            )

    def check_own(self, job_id: str, job: SlurmJob | None, caller: Caller, access: Access) -> None:
        """Raise CallRefused if the job (None: Slurm knows none of that id) is not the caller's own.

        Where jobs are private, the refusal does not tell whether the job exists.
        """
        own = job is not None and bool(caller.user) and job.user == caller.user
        if own:
            return
        if not access.every_job:
            raise private_refusal(access)
        if job is not None:
            raise CallRefused(
                Reason.NOT_YOUR_JOB,
                f"job {job_id} is {job.user}'s, and users may change only jobs of their own; root and the controller's user may "
                f"change any, through {ADMIN_SOCKET}",
            )

    @contextmanager
    def spending(self, caller: Caller, action: str, job_id: str) -> Iterator[UserBudget]:
        """Count one change of the caller, unless the code within raises CallRefused. Yields the budget after it.

        Raises CallRefused when the caller has none left.
        """
        if caller.uid is None:
            raise CallRefused(Reason.NOT_YOUR_JOB, "the system does not tell which user makes this call")
        table, now_s = self._controller.journal.user_changes, self._controller.clock.now()
        try:
            before = self._budget(caller.uid, now_s)
            if refusal := before.refusal():
                raise CallRefused(Reason.CHANGES_SPENT, refusal)
            # Recorded first: if the controller is killed in between, a change counts too much rather than too little.
            number = table.add(caller.uid, now_s, action, job_id)
        except JournalError as error:
            raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error
        try:
            yield UserBudget(before.most, (*before.times_s, now_s), now_s)
        except CallRefused:
            try:
                table.remove(number)
            except JournalError as error:
                raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error
            raise

    def _budget(self, uid: int, now_s: float) -> UserBudget:
        table = self._controller.journal.user_changes
        table.bring_forward(now_s)
        times_s = table.times_s(uid, now_s - HOUR_S)
        return UserBudget(self._controller.settings.user_changes_per_hour, times_s, now_s)
