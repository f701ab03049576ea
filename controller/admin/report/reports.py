"""Answers the call GetReport: which jobs a user may see, and what became of them."""

from __future__ import annotations

from controller.admin.explain.cycle_view import CycleView
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.report.compose import job_report
from controller.admin.report.job_notes import JobNotes
from controller.admin.report.sources import gather, known
from controller.admin.viewer import Viewer
from controller.base.errors import JournalError
from controller.base.text import without_job_ids
from controller.slurm.accounting import Accounting
from protos.headway.v1 import admin_pb2


class Reports:
    """Makes reports. Invariant: where jobs are private, a user sees no more of another user's job than that it is refused."""

    def __init__(self, viewer: Viewer, notes: JobNotes | None = None, accounting: Accounting | None = None) -> None:
        """Without `notes` and `accounting` reports have what the journal, the agents and the last snapshot know."""
        self._viewer = viewer
        self._notes = notes
        self._accounting = accounting

    async def report(self, job_id: str, user: str, *, private: bool) -> admin_pb2.JobSummary:
        """Return the report on a job. `private`: `user` sees jobs of their own alone. Raises CallRefused."""
        self._viewer.check_id(job_id)
        view = self._viewer.require_view()
        try:
            found = known(self._viewer, view, job_id)
            if private and (found is None or not user or found.user != user):
                raise CallRefused(
                    Reason.JOBS_PRIVATE,
                    "this cluster keeps jobs private (PrivateData in slurm.conf): you get the reports of your own jobs; only root, "
                    "the controller's user and the group of `admin_group` in controller.toml get those of others",
                )
            if found is None:
                raise CallRefused(Reason.UNKNOWN_JOB, self._unknown_text(view, job_id))
            sources = await gather(self._viewer, found, self._notes, self._accounting)
        except JournalError as error:
            raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error
        message = job_report(sources, view, lambda raw_id: self._id_of(view, raw_id, user if private else None))
        return _without_others(message) if private else message

    def _unknown_text(self, view: CycleView, job_id: str) -> str:
        tasks = view.tasks(job_id)
        if tasks:
            return f"job {job_id} is an array; ask for one of its tasks, such as {tasks[0].key.job_id}"
        days = self._viewer.controller.settings.keep_days
        return (
            f"neither Slurm nor Headway's journal knows job {job_id}: Headway has not scheduled it, or it ended more than {days:g} "
            f"days ago (keep_days). `sacct -j {job_id}` shows what Slurm's accounting has"
        )

    def _id_of(self, view: CycleView, raw_id: int, only_of: str | None) -> str:
        """Return the id of a job beside the reported one; empty if it is not a job of the only user whose jobs may be seen."""
        job_id = view.called(raw_id)
        if only_of is None:
            return job_id
        job = view.find(job_id)
        return job_id if job is not None and job.user == only_of else ""


def _without_others(message: admin_pb2.JobSummary) -> admin_pb2.JobSummary:
    """Remove the ids of other jobs from the reasons."""
    for run in message.runs:
        run.reason = without_job_ids(run.reason)
    for stop in message.stops:
        stop.why, stop.problem = without_job_ids(stop.why), without_job_ids(stop.problem)
    return message
