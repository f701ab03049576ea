"""Answers for callers that may see jobs of one user alone: without other jobs, and without their ids in sentences."""

from __future__ import annotations

import asyncio

from controller.admin.access import Access
from controller.admin.preemption_messages import MOST, preemption_list
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.report.sources import known
from controller.admin.viewer import Viewer
from controller.base.errors import JournalError
from controller.base.text import without_job_ids
from controller.state.preemption_table import PreemptedJob
from protos.headway.v1 import admin_pb2

_WITH_IDS = ("beside",)
"""Facts that are nothing but ids of other jobs."""
_NEWEST = 2**63 - 1
"""Beyond the number of every preemption."""
_AT_ONCE = 2000
"""Preemptions whose users are read at once; this takes about 15 ms."""


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


async def preemptions_for(
    request: admin_pb2.ListPreemptionsRequest, viewer: Viewer, access: Access
) -> admin_pb2.PreemptionList:
    """Return the newest preemptions of the jobs that the caller may see, as many as the request wants. Raises CallRefused."""
    most = min(request.limit or MOST, MOST)
    try:
        if request.number:
            numbers = await _numbers(viewer, access, before=request.number + 1, last=request.number, most=1)
        else:
            numbers = await _numbers(viewer, access, before=request.before or _NEWEST, last=1, most=most + 1)
        rows = viewer.controller.preemptions.numbered(numbers[:most])
    except JournalError as error:
        raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error
    found = preemption_list(rows)
    found.more = len(numbers) > most
    if not access.every_job:
        for row in found.preemptions:
            row.why, row.problem = without_job_ids(row.why), without_job_ids(row.problem)
    return found


async def _numbers(viewer: Viewer, access: Access, *, before: int, last: int, most: int) -> list[int]:
    """Return the newest numbers of preemptions whose jobs the caller may see, from below `before` down to `last`, at most `most`.

    All rows may have to be read to find few, so that the event loop has a turn after each piece. Raises JournalError.
    """
    found: list[int] = []
    at_once = most if access.every_job or before == last + 1 else _AT_ONCE
    while len(found) < most and before > last:
        rows = viewer.controller.preemptions.jobs(before, at_once)
        seen = [row.number for row in rows if row.number >= last and _sees(viewer, access, row)]
        found += seen[: most - len(found)]
        if len(rows) < at_once:
            break
        before = rows[-1].number
        await asyncio.sleep(0)
    return found


def _sees(viewer: Viewer, access: Access, row: PreemptedJob) -> bool:
    """Return whether the caller may see that job: Slurm may have forgotten it, and issued its id again since."""
    if access.every_job:
        return True
    view = viewer.require_view()
    job = view.find(row.job_id)
    is_this = job is not None and row.submit_time_s >= view.first_submit_s(job)
    return access.sees(job.user if job is not None and is_this else row.user)


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
