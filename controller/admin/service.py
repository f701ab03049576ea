"""The calls of the Admin service, by operators and users. `serve` has the sockets for them."""

# ruff: noqa: ARG002, N802 - gRPC gives the methods their names and arguments

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc.aio

from controller.admin.access import Access, AccessRules, private_refusal
from controller.admin.changes import Changes
from controller.admin.event_messages import events_of, past_events
from controller.admin.explain.advice_text import with_advice, with_impairment
from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import Past, explain
from controller.admin.front import caller_of, uid_of
from controller.admin.messages import add_start, add_steps, decision_records, explanation, policy_info
from controller.admin.own_jobs import is_own, only_own_entries, preemptions_for, without_others
from controller.admin.preemption_messages import preemption_text
from controller.admin.profile_calls import ProfileCalls
from controller.admin.protocol import LISTENING, Reason
from controller.admin.refusal import refuse, refusing
from controller.admin.report.reports import Reports
from controller.admin.report.usage import UsageReports
from controller.admin.viewer import Viewer
from controller.base.audit import AuditLog
from controller.base.private_data import JOBS, USAGE
from controller.base.text import without_job_ids
from controller.observe.role import Role
from controller.slurm.model.job import SlurmJob
from protos.headway.v1 import admin_pb2, admin_pb2_grpc

if TYPE_CHECKING:  # a class of the type stubs only
    _Context = admin_pb2_grpc._ServicerContext

_MAX_WATCHERS = 128
_MAX_WATCHERS_A_USER = 8


class AdminService(admin_pb2_grpc.AdminServicer):
    """Answers the calls of one socket. Invariant: only UsePolicy, Preempt and RequestProfile change anything, and
    without `any_job` only callers' own jobs."""

    def __init__(
        self, viewer: Viewer, reports: Reports, rules: AccessRules, *, any_job: bool, audit: AuditLog | None = None
    ) -> None:
        """`rules`: which jobs each caller may see. Without `audit` no request is recorded."""
        self._viewer = viewer
        self._reports = reports
        self._usage = UsageReports(viewer)
        self._changes = Changes(viewer, audit, any_job=any_job)
        self._controller = viewer.controller
        self._any_job = any_job
        self._profiles = ProfileCalls(viewer, any_job=any_job)
        self._rules = rules

    async def GetStatus(self, request: admin_pb2.GetStatusRequest, context: _Context) -> admin_pb2.Status:
        """Return the state of controller, policy and cluster; with advice on jobs only where users may see jobs."""
        async with refusing(context):
            access = await self._rules.of(context)
        message = self._viewer.status()
        if not access.every_job:
            del message.advice[:]
        return message

    async def GetQueue(self, request: admin_pb2.GetQueueRequest, context: _Context) -> admin_pb2.Queue:
        """Return every managed job that has not ended, as far as the caller may see jobs."""
        access = await self._access(context)
        found = await self._viewer.queue(await self._view(context))
        return found if access.every_job else only_own_entries(found, access)

    async def Why(self, request: admin_pb2.WhyRequest, context: _Context) -> admin_pb2.Explanation:
        """Explain one job."""
        access = await self._access(context)
        job_id = request.job_id
        await self._check_id(context, job_id)
        view = await self._view(context)
        await self._check_own(context, access, job_id)
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
        if self._viewer.measurement is not None:
            found = with_impairment(found, self._viewer.measurement.impaired, view.find(job_id))
        placed = [] if found.key is None else controller.journal.decisions_of(found.key)
        sentence, facts = preemption_text(controller.preemptions, view.find(job_id), controller.clock.now())
        answer = explanation(found, decision_records(placed), sentence + self._as_of())
        answer.facts.update(facts)
        if found.state == Role.RUNNING.value and (job := view.find(job_id)) is not None:
            self._add_steps(answer, view, job)
        if found.state == Role.WAITING.value and found.key is not None:
            estimate = self._viewer.starts(found.key)
            if estimate is not None:
                add_start(answer, estimate, controller.clock.now())
        return answer if access.every_job else without_others(answer)

    def _add_steps(self, answer: admin_pb2.Explanation, view: CycleView, job: SlurmJob) -> None:
        done, measured = self._controller.preemptions.steps_done(job), view.contention(job)
        if done is not None:
            add_steps(answer, job, done, None if measured is None else measured.window.steps_per_s)

    async def GetReport(self, request: admin_pb2.GetReportRequest, context: _Context) -> admin_pb2.JobSummary:
        """Report what became of one job."""
        access = await self._access(context)
        async with refusing(context):
            return await self._reports.report(request.job_id, access.user, private=not access.every_job)

    async def GetUsage(self, request: admin_pb2.GetUsageRequest, context: _Context) -> admin_pb2.Usage:
        """Return the GPU time of users, as far as the caller may see it."""
        access = await self._access(context, USAGE)
        async with refusing(context):
            return await self._usage.usage(access.user, private=not access.every_job)

    async def GetPolicy(self, request: admin_pb2.GetPolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """Return the policy that decides. Its server is called first, because another process may have replaced it."""
        await self._controller.decider.refresh()
        return policy_info(self._controller.decider)

    async def UsePolicy(self, request: admin_pb2.UsePolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """Let another policy server decide."""
        async with refusing(context):
            return await self._changes.use_policy(request, await caller_of(context.peer()))

    async def Preempt(self, request: admin_pb2.PreemptRequest, context: _Context) -> admin_pb2.PreemptionRecord:
        """Request a job to save, and then stop it."""
        caller = await caller_of(context.peer())
        async with refusing(context):
            return await self._changes.preempt(request, caller, partial(self._rules.of_change, context))

    async def ListPreemptions(
        self, request: admin_pb2.ListPreemptionsRequest, context: _Context
    ) -> admin_pb2.PreemptionList:
        """Return open and past preemptions, as far as the caller may see jobs."""
        access = await self._access(context)
        async with refusing(context):
            return await preemptions_for(request, self._viewer, access)

    async def ListProfiles(self, request: admin_pb2.ListProfilesRequest, context: _Context) -> admin_pb2.ProfileList:
        """Return the measurements by kind of job."""
        async with refusing(context):
            return await self._profiles.kinds(request)

    async def GetProfile(self, request: admin_pb2.GetProfileRequest, context: _Context) -> admin_pb2.JobMeasurements:
        """Return the measurements of one job."""
        caller = await caller_of(context.peer())
        async with refusing(context):
            access = await self._rules.of(context)
            return await self._profiles.of_job(request.job_id, request.limit, caller, access)

    async def RequestProfile(
        self, request: admin_pb2.RequestProfileRequest, context: _Context
    ) -> admin_pb2.RequestedProfile:
        """Request a new profile of a running job."""
        caller = await caller_of(context.peer())
        async with refusing(context):
            return await self._changes.profile(request, caller, partial(self._rules.of_change, context))

    async def ExportProfiles(
        self, request: admin_pb2.ExportProfilesRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.SlowdownRows]:
        """Yield all measurements as rows for fitting."""
        async with refusing(context):
            pieces = await self._profiles.rows(dict(request.racks), request.since_s)
        for piece in pieces:
            yield piece

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """Yield past and coming events, as requested."""
        access = await self._access(context)
        if request.job_id:
            await self._check_id(context, request.job_id)
        await self._check_own(context, access, request.job_id)
        watchers, uid = self._viewer.watchers, uid_of(context.peer())
        if not self._any_job and (watchers.total() >= _MAX_WATCHERS or watchers[uid] >= _MAX_WATCHERS_A_USER):
            most = f"{_MAX_WATCHERS_A_USER} calls of one user, {_MAX_WATCHERS} of all"
            await refuse(
                context,
                Reason.TOO_MANY_WATCHERS,
                f"too many callers watch events already ({most}); end one of them first",
            )
        watchers[uid] += 1
        try:
            with self._controller.events.listen() as coming:
                # Nothing is awaited between the two, so that no event is lost, and none comes twice.
                past = past_events(self._controller.events, request)
                # The first metadata show the caller that the call was accepted, however long no event comes.
                await cast("grpc.aio.ServicerContext[Any, Any]", context).send_initial_metadata(((LISTENING, "1"),))
                async for event in events_of(past, coming, self._controller.clock, request):
                    if event.user and not access.sees(event.user):
                        continue  # of an earlier job with the same id
                    if not access.every_job:
                        event.text = without_job_ids(event.text)
                    yield event
        finally:
            watchers[uid] -= 1
            if not watchers[uid]:
                del watchers[uid]

    async def _view(self, context: _Context) -> CycleView:
        async with refusing(context):
            return self._viewer.require_view()

    async def _access(self, context: _Context, hidden_by: frozenset[str] = JOBS) -> Access:
        """Return which jobs the caller may see. Refuses callers that may see none, and while it is not known."""
        async with refusing(context):
            access = await self._rules.of(context, hidden_by)
            if not access.every_job and self._controller.facts is None:
                raise self._viewer.not_ready()
            if not access.every_job and not access.user:
                raise private_refusal(access)
        return access

    async def _check_own(self, context: _Context, access: Access, job_id: str) -> None:
        """Refuse the call about a job (empty: about all jobs) that the caller may not see, whether or not it exists."""
        async with refusing(context):
            if not access.every_job and not (job_id and is_own(self._viewer, job_id, access)):
                raise private_refusal(access)

    async def _check_id(self, context: _Context, job_id: str) -> None:
        async with refusing(context):
            self._viewer.check_id(job_id)

    def _past(self, view: CycleView, job_id: str) -> Past:
        journal = self._controller.journal
        job = view.find(job_id)
        run = journal.last_run(job_id) if job is None else None
        key = job.key if job is not None else run.key if run is not None else None
        given = None if key is None else journal.given_to_slurm.last(key)
        return Past(run=run, given_to_slurm="" if given is None else given.why)

    def _as_of(self) -> str:
        """Return a warning while slurmctld does not answer; empty when it does."""
        controller = self._controller
        if not controller.health.slurm_away:
            return ""
        age_s = controller.clock.now() - controller.health.snapshot_time_s
        return f" As of {age_s:.0f} s ago: Slurm has not answered since."
