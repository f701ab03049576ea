"""Answers for callers that may see jobs of one user alone: without other jobs, and without their ids in sentences."""

from __future__ import annotations

from controller.admin.access import Access
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.report.sources import known
from controller.admin.viewer import Viewer
from controller.base.errors import JournalError
from controller.base.text import without_job_ids
from protos.headway.v1 import admin_pb2

_WITH_IDS = ("beside",)
"""Facts that are nothing but ids of other jobs."""


def is_own(viewer: Viewer, job_id: str, access: Access) -> bool:
    """Return whether that job, or the array of that id, is one that the caller may see; False for a job that nothing knows.

    Raises CallRefused.
    """
    view = viewer.require_view()
    tasks = view.tasks(job_id)
    if tasks:
        return all(access.sees(task.user) for task in tasks)
    try:
        found = known(viewer, view, job_id)
    except JournalError as error:
        raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error
    return found is not None and access.sees(found.user)


def only_own_entries(queue: admin_pb2.Queue, access: Access) -> admin_pb2.Queue:
    """Return the queue with the jobs alone that the caller may see."""
    own = [entry for entry in queue.entries if access.sees(entry.user)]
    ids = {entry.job_id for entry in own}
    found = admin_pb2.Queue(entries=own)  # copies: the queue of all jobs is for other callers too
    for entry in found.entries:
        entry.why = without_job_ids(entry.why)
        beside = [job_id for job_id in entry.beside if job_id in ids]
        del entry.beside[:]
        entry.beside.extend(beside)
    return found


def only_own_preemptions(
    preemptions: admin_pb2.PreemptionList, viewer: Viewer, access: Access
) -> admin_pb2.PreemptionList:
    """Return the preemptions of the jobs alone that the caller may see. Raises CallRefused."""
    ids = {row.job_id for row in preemptions.preemptions}
    own = {job_id for job_id in ids if is_own(viewer, job_id, access)}
    found = admin_pb2.PreemptionList(preemptions=[row for row in preemptions.preemptions if row.job_id in own])
    for row in found.preemptions:
        row.why, row.problem = without_job_ids(row.why), without_job_ids(row.problem)
    return found


def without_others(answer: admin_pb2.Explanation) -> admin_pb2.Explanation:
    """Remove the ids of other jobs from an explanation."""
    answer.sentence = without_job_ids(answer.sentence)
    for name in _WITH_IDS:
        answer.facts.pop(name, None)
    for name, value in list(answer.facts.items()):
        answer.facts[name] = without_job_ids(value)
    for record in answer.decisions:
        record.reason = without_job_ids(record.reason)
    return answer
