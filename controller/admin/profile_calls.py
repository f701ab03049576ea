"""The calls of the Admin service about measurements: of all jobs for operators, of a user's own jobs for that user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from controller.admin.access import Access, private_refusal
from controller.admin.own_jobs import is_own
from controller.admin.profile_messages import measurements, name_users, profile_list, slowdown_rows, without_neighbours
from controller.admin.protocol import ADMIN_SOCKET, Reason
from controller.admin.refusal import CallRefused, no_agents
from controller.admin.viewer import Viewer
from controller.base.audit import Caller
from controller.contention.measurement import Measurement
from controller.profiles.reader import ProfileReader, ProfileStoreError
from protos.headway.v1 import admin_pb2

T = TypeVar("T")


class ProfileCalls:
    """Answers from the store of profiles. Every method raises CallRefused."""

    def __init__(self, viewer: Viewer, *, any_job: bool) -> None:
        """`any_job`: the callers may see the measurements of all jobs; else those of their own."""
        self._viewer = viewer
        self._any_job = any_job

    async def kinds(self, request: admin_pb2.ListProfilesRequest) -> admin_pb2.ProfileList:
        """Return the measurements by kind of job, for callers that may see those of all jobs."""
        measurement = self._of_all_jobs()
        known, running = measurement.known, self._viewer.running(measurement.known)
        found = await _read(measurement, lambda store: profile_list(store, known, running, request))
        await name_users(found.kinds)
        return found

    async def of_job(self, job_id: str, limit: int, caller: Caller, access: Access) -> admin_pb2.JobMeasurements:
        """Return the measurements of one job; for other callers than operators only of their own, without other jobs' speeds."""
        self._viewer.check_id(job_id)
        if not self._any_job:
            self._check_own(job_id, caller, access)
        measurement = self._measurement()
        view = self._viewer.require_view()
        job = view.find(job_id)
        raw_id = job.raw_id if job is not None else None
        if raw_id is None and job_id.isdecimal():
            raw_id = int(job_id)
        found = None
        if raw_id is not None:
            of_job = partial(
                measurements, job_id=job_id, raw_id=raw_id, limit=limit, called=view.called,
                window_s=measurement.window_s,
            )  # fmt: skip
            found = await _read(measurement, of_job)
        if found is None:
            raise CallRefused(
                Reason.NOTHING_MEASURED,
                f"there are no measurements of job {job_id}: no node agent has reported its training steps, or the reports were "
                "too long ago (for an array task that Slurm has forgotten, give its SLURM_JOB_ID)",
            )
        await name_users([found])
        present = [each for run, each in self._viewer.running(measurement.known).items() if run.job_id == raw_id]
        if present:
            found.now.CopyFrom(present[-1])
        return found if self._any_job else without_neighbours(found, ids=access.every_job)

    async def rows(self, racks: Mapping[str, str], since_s: float) -> Iterator[admin_pb2.SlowdownRows]:
        """Return all measurements as rows for fitting, in pieces."""
        # Only here: the rows are the simulator's, which no other answer needs.
        from controller.profiles.fit_rows import rows

        measurement = self._of_all_jobs()
        found = await _read(measurement, lambda store: rows(store, lambda node: racks.get(node, ""), since_s))
        return slowdown_rows(found)

    def _of_all_jobs(self) -> Measurement:
        if not self._any_job:
            raise CallRefused(
                Reason.ADMIN_ONLY,
                f"only root and the controller's user may see the measurements of all users' jobs, through {ADMIN_SOCKET}; "
                "`headway profile show JOBID` shows those of a job of your own",
            )
        return self._measurement()

    def _measurement(self) -> Measurement:
        if self._viewer.measurement is None:
            raise no_agents("nothing is measured")
        return self._viewer.measurement

    def _check_own(self, job_id: str, caller: Caller, access: Access) -> None:
        """Raise CallRefused for jobs of others and jobs that nothing knows, which are not told apart."""
        if caller.user and is_own(self._viewer, job_id, Access(every_job=False, user=caller.user)):
            return
        if not access.every_job:
            raise private_refusal(access)
        raise CallRefused(
            Reason.NOT_YOUR_JOB,
            f"Headway knows no job {job_id} of {caller.user or 'yours'}, and users may see only measurements of their own jobs; "
            f"root and the controller's user may see all, through {ADMIN_SOCKET}",
        )


async def _read(measurement: Measurement, work: Callable[[ProfileReader], T]) -> T:
    try:
        return await measurement.read(work)
    except ProfileStoreError as error:
        raise CallRefused(Reason.PROFILES_UNREADABLE, str(error)) from error
