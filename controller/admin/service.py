"""The calls of the Admin service, by operators and users. `serve` has the sockets for them."""

# ruff: noqa: ARG002, N802 - gRPC gives the methods their names and arguments

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import grpc.aio

from controller.admin.explain.advice_text import with_advice
from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import Past, explain
from controller.admin.front import uid_of
from controller.admin.messages import (
    decision_records,
    explanation,
    policy_info,
)
from controller.admin.preemption_messages import (
    MOST,
    InvalidPreemptionError,
    check_place,
    check_size,
    constraint_of,
    preemption_list,
    preemption_record,
    preemption_text,
    save_limit_of,
)
from controller.admin.profile_messages import measurements, profile_list, slowdown_rows
from controller.admin.protocol import ADMIN_SOCKET, LISTENING, Reason
from controller.admin.refusal import refuse
from controller.admin.viewer import Viewer
from controller.base.errors import JournalError, PolicyUnavailableError, PreemptionRefusedError
from controller.contention.measurement import Measurement
from controller.observe.resize import ResizeError
from controller.profiles.reader import ProfileReader, ProfileStoreError
from controller.state.preemption import Cause
from policies.errors import PolicyError
from protos.headway.v1 import admin_pb2, admin_pb2_grpc

if TYPE_CHECKING:  # a class of the type stubs only
    _Context = admin_pb2_grpc._ServicerContext

T = TypeVar("T")

_JOB_ID = re.compile(r"[0-9]{1,18}(_[0-9]{1,18})?")
_MAX_WATCHERS = 128
_MAX_WATCHERS_A_USER = 8


class AdminService(admin_pb2_grpc.AdminServicer):
    """Answers the calls of one socket. Invariant: only UsePolicy and Preempt change anything, where `may_change` is set."""

    def __init__(self, viewer: Viewer, *, may_change: bool, everybody: bool) -> None:
        """`everybody`: any user of the machine can open the socket."""
        self._viewer = viewer
        self._controller = viewer.controller
        self._may_change = may_change
        self._everybody = everybody

    async def GetStatus(self, request: admin_pb2.GetStatusRequest, context: _Context) -> admin_pb2.Status:
        """Return the state of controller, policy and cluster; with advice on jobs only where users may see jobs."""
        message = self._viewer.status()
        if self._everybody and self._private():
            del message.advice[:]
        return message

    async def GetQueue(self, request: admin_pb2.GetQueueRequest, context: _Context) -> admin_pb2.Queue:
        """Return every managed job that has not ended."""
        await self._check_private(context)
        return await self._viewer.queue(await self._view(context))

    async def Why(self, request: admin_pb2.WhyRequest, context: _Context) -> admin_pb2.Explanation:
        """Explain one job."""
        await self._check_private(context)
        job_id = request.job_id
        await _check_id(context, job_id)
        view = await self._view(context)
        controller = self._controller
        found = explain(view, job_id, controller.clock.now(), self._past(view, job_id))
        if found is None:
            await refuse(
                context,
                Reason.UNKNOWN_JOB,
                f"neither Slurm nor Headway's journal knows job {job_id} (`squeue` and `sacct` list job ids; a job "
                "submitted a moment ago is known as soon as Slurm is read again)",
            )
        found = with_advice(found, self._viewer.contention, view.find(job_id))
        placed = [] if found.key is None else controller.journal.decisions_of(found.key)
        sentence, facts = preemption_text(controller.preemptions, view.find(job_id), controller.clock.now())
        answer = explanation(found, decision_records(placed), sentence + self._as_of())
        answer.facts.update(facts)
        return answer

    async def GetPolicy(self, request: admin_pb2.GetPolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """Return the policy that decides. Its server is called first, because another process may have replaced it."""
        await self._controller.decider.refresh()
        return policy_info(self._controller.decider)

    async def UsePolicy(self, request: admin_pb2.UsePolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """Let another policy server decide."""
        if not self._may_change:
            await refuse(
                context,
                Reason.ADMIN_ONLY,
                f"only root and the controller's user may change the policy, through {ADMIN_SOCKET}",
            )
        try:
            await self._controller.use_policy(request.address)
        except PolicyUnavailableError as error:
            await refuse(context, Reason.POLICY_UNUSABLE, f"{error}; the policy stays as it was")
        except PolicyError as error:
            await refuse(context, Reason.INVALID_ADDRESS, str(error))
        return policy_info(self._controller.decider)

    async def Preempt(self, request: admin_pb2.PreemptRequest, context: _Context) -> admin_pb2.PreemptionRecord:
        """Request a job to save, and then stop it."""
        if not self._may_change:
            await refuse(
                context,
                Reason.ADMIN_ONLY,
                f"only root and the controller's user may preempt jobs, through {ADMIN_SOCKET}",
            )
        await _check_id(context, request.job_id)
        view = await self._view(context)
        job = view.find(request.job_id)
        if job is None:
            await refuse(
                context, Reason.UNKNOWN_JOB, f"Slurm does not know job {request.job_id}; `squeue` lists job ids"
            )
        try:
            constraint, within_s = constraint_of(request, job, view.state.nodes.names), save_limit_of(request)
            check_size(constraint, view, job)
            check_place(constraint, view, job)
            found = self._controller.preemptions.begin(
                job, Cause.OPERATOR, "by hand", constraint, force=request.force, within_s=within_s
            )
        except InvalidPreemptionError as error:
            await refuse(context, Reason.INVALID_PREEMPTION, str(error))
        except PreemptionRefusedError as error:
            await refuse(context, Reason.NOT_PREEMPTIBLE, str(error))
        except ResizeError as error:
            await refuse(context, Reason.NOT_RESIZABLE, str(error))
        except JournalError as error:
            await refuse(context, Reason.JOURNAL_FAILED, str(error))
        return preemption_record(found)

    async def ListPreemptions(
        self, request: admin_pb2.ListPreemptionsRequest, context: _Context
    ) -> admin_pb2.PreemptionList:
        """Return open and past preemptions."""
        await self._check_private(context)
        preemptions = self._controller.preemptions
        if request.number:
            found = preemptions.find(request.number)
            return preemption_list([] if found is None else [found])
        return preemption_list(preemptions.newest(min(request.limit or MOST, MOST)))

    async def ListProfiles(self, request: admin_pb2.ListProfilesRequest, context: _Context) -> admin_pb2.ProfileList:
        """Return the measurements by kind of job."""
        measurement = await self._measurement(context)
        known, running = measurement.known, self._viewer.running(measurement.known)
        return await _read(context, measurement, lambda store: profile_list(store, known, running, request.limit))

    async def GetProfile(self, request: admin_pb2.GetProfileRequest, context: _Context) -> admin_pb2.JobMeasurements:
        """Return the measurements of one job."""
        measurement = await self._measurement(context)
        await _check_id(context, request.job_id)
        view, job_id = await self._view(context), request.job_id
        job = view.find(job_id)
        raw_id = job.raw_id if job is not None else None
        if raw_id is None and job_id.isdecimal():
            raw_id = int(job_id)
        found = None
        if raw_id is not None:
            of_job = partial(
                measurements,
                job_id=job_id,
                raw_id=raw_id,
                limit=request.limit,
                called=view.called,
                window_s=measurement.window_s,
            )
            found = await _read(context, measurement, of_job)
        if found is None:
            await refuse(
                context,
                Reason.NOTHING_MEASURED,
                f"there are no measurements of job {job_id}: no node agent has reported its training steps, or the reports were "
                "too long ago (for an array task that Slurm has forgotten, give its SLURM_JOB_ID)",
            )
        present = [each for run, each in self._viewer.running(measurement.known).items() if run.job_id == raw_id]
        if present:
            found.now.CopyFrom(present[-1])
        return found

    async def ExportProfiles(
        self, request: admin_pb2.ExportProfilesRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.SlowdownRows]:
        """Yield all measurements as rows for fitting."""
        from controller.profiles.fit_rows import (
            rows,  # only here: the rows are the simulator's, which no other answer needs
        )

        measurement = await self._measurement(context)
        racks = dict(request.racks)
        found = await _read(
            context, measurement, lambda store: rows(store, lambda node: racks.get(node, ""), request.since_s)
        )
        for piece in slowdown_rows(found):
            yield piece

    async def _measurement(self, context: _Context) -> Measurement:
        """Return the measurement. Refuses callers that may not see other users' jobs, and controllers without agents."""
        if not self._may_change:
            await refuse(
                context,
                Reason.ADMIN_ONLY,
                f"only root and the controller's user may see the measurements of all users' jobs, through {ADMIN_SOCKET}; "
                "`headway why JOBID` explains a single running job",
            )
        measurement = self._viewer.measurement
        if measurement is None:
            await refuse(
                context,
                Reason.NO_AGENTS,
                "no node agents report to this controller, so nothing is measured; set agents_address in controller.toml, and run "
                "headway-agent on the nodes",
            )
        return measurement

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """Yield events from now on."""
        await self._check_private(context)
        watchers, uid = self._viewer.watchers, uid_of(context.peer())
        if not self._may_change and (watchers.total() >= _MAX_WATCHERS or watchers[uid] >= _MAX_WATCHERS_A_USER):
            most = f"{_MAX_WATCHERS_A_USER} calls of one user, {_MAX_WATCHERS} of all"
            await refuse(
                context,
                Reason.TOO_MANY_WATCHERS,
                f"too many callers watch events already ({most}); end one of them first",
            )
        watchers[uid] += 1
        try:
            with self._controller.events.listen() as events:
                # The first metadata show the caller that the call was accepted, however long no event comes.
                await cast("grpc.aio.ServicerContext[Any, Any]", context).send_initial_metadata(((LISTENING, "1"),))
                while True:
                    event = await events.get()
                    yield admin_pb2.Event(time_s=event.time_s, kind=event.kind, job_id=event.job_id, text=event.text)
        finally:
            watchers[uid] -= 1

    async def _view(self, context: _Context) -> CycleView:
        view = self._viewer.view()
        if view is None:
            await self._abort_not_ready(context)
        return view

    async def _abort_not_ready(self, context: _Context) -> NoReturn:
        problem = self._controller.health.last_error or "Slurm has not answered yet; try again in a moment"
        text = f"the controller is running, but has not read the cluster yet: {problem}"
        await refuse(context, Reason.NOT_READY, text)

    async def _check_private(self, context: _Context) -> None:
        """Refuse the call when Slurm hides jobs from other users and every user can open this socket."""
        if not self._everybody:
            return
        facts = self._controller.facts
        if facts is None:
            await self._abort_not_ready(context)
        if self._private():
            await refuse(
                context,
                Reason.JOBS_PRIVATE,
                "this cluster keeps jobs private (PrivateData in slurm.conf): only root, the controller's user and the group "
                "of `admin_group` in controller.toml may see them",
            )

    def _private(self) -> bool:
        """Return whether Slurm hides jobs from other users; True while it is not known."""
        facts = self._controller.facts
        private = "jobs" if facts is None else facts.settings.get("PrivateData", "")
        return bool({"jobs", "all"} & set(private.lower().split(",")))

    def _past(self, view: CycleView, job_id: str) -> Past:
        journal = self._controller.journal
        job = view.find(job_id)
        if job is None:
            return Past(run=journal.last_run(job_id))
        released = (step.detail for step in journal.intents_of(job.key) if step.verb == "release")
        return Past(given_to_slurm=next(released, ""))

    def _as_of(self) -> str:
        """Return a warning while slurmctld does not answer; empty when it does."""
        controller = self._controller
        if not controller.health.slurm_away:
            return ""
        age_s = controller.clock.now() - controller.health.snapshot_time_s
        return f" As of {age_s:.0f} s ago: Slurm has not answered since."


async def _check_id(context: _Context, job_id: str) -> None:
    if not _JOB_ID.fullmatch(job_id):
        await refuse(
            context, Reason.INVALID_JOB_ID, f"{job_id[:40]!r} is not a job id; give an id such as 123 or 123_4"
        )


async def _read(context: _Context, measurement: Measurement, work: Callable[[ProfileReader], T]) -> T:
    try:
        return await measurement.read(work)
    except ProfileStoreError as error:
        await refuse(context, Reason.PROFILES_UNREADABLE, str(error))
