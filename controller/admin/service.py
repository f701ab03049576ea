"""The calls of the Admin service: what operators and users ask the controller. `serve` says over which sockets they come."""

# ruff: noqa: ARG002, N802 - gRPC gives the methods their names and arguments

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import grpc
import grpc.aio

from controller.admin.explain.advice_text import advised
from controller.admin.explain.cycle_view import Scene
from controller.admin.explain.explain import Past, explain
from controller.admin.front import uid_of
from controller.admin.messages import (
    decision_records,
    explanation,
    policy_info,
)
from controller.admin.preemption_messages import (
    MOST,
    WrongWishError,
    check_place,
    check_size,
    elsewhere_of,
    preemption_list,
    preemption_record,
    told_of_preemption,
    within_of,
)
from controller.admin.profile_messages import measurements, profile_list, slowdown_rows
from controller.admin.protocol import ADMIN_SOCKET, NOT_READY
from controller.admin.viewer import Viewer
from controller.base.errors import JournalError, PolicyUnavailableError, PreemptionRefusedError
from controller.contention.measurement import Measuring
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
        """How controller, policy and cluster are; of single jobs only where everybody may ask about them."""
        message = self._viewer.status()
        if self._everybody and self._private():
            del message.advice[:]
        return message

    async def GetQueue(self, request: admin_pb2.GetQueueRequest, context: _Context) -> admin_pb2.Queue:
        """Every managed job that has not ended."""
        await self._check_private(context)
        return await self._viewer.queue(await self._scene(context))

    async def Why(self, request: admin_pb2.WhyRequest, context: _Context) -> admin_pb2.Explanation:
        """One job explained."""
        await self._check_private(context)
        job_id = request.job_id
        await _check_id(context, job_id)
        scene = await self._scene(context)
        controller = self._controller
        found = explain(scene, job_id, controller.clock.now(), self._past(scene, job_id))
        if found is None:
            await _abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"job {job_id} is not known, neither to Slurm nor to Headway's journal (`squeue` and `sacct` list job ids; a job "
                "submitted a moment ago is known as soon as Slurm is read again)",
            )
        found = advised(found, self._viewer.contention, scene.find(job_id))
        placed = [] if found.key is None else controller.journal.decisions_of(found.key)
        sentence, facts = told_of_preemption(controller.preemptions, scene.find(job_id), controller.clock.now())
        answer = explanation(found, decision_records(placed), sentence + self._as_of())
        answer.facts.update(facts)
        return answer

    async def GetPolicy(self, request: admin_pb2.GetPolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """The policy that decides; its server is asked if another process may have taken its place."""
        await self._controller.decider.greet()
        return policy_info(self._controller.decider)

    async def UsePolicy(self, request: admin_pb2.UsePolicyRequest, context: _Context) -> admin_pb2.PolicyInfo:
        """Let another policy server decide."""
        if not self._may_change:
            await _abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                f"only root and the controller's user may change the policy, through {ADMIN_SOCKET}",
            )
        try:
            await self._controller.use_policy(request.address)
        except PolicyUnavailableError as error:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, f"{error}; the policy stays as it was")
        except PolicyError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return policy_info(self._controller.decider)

    async def Preempt(self, request: admin_pb2.PreemptRequest, context: _Context) -> admin_pb2.PreemptionRecord:
        """Have a job save, and stop it."""
        if not self._may_change:
            await _abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                f"only root and the controller's user may preempt jobs, through {ADMIN_SOCKET}",
            )
        await _check_id(context, request.job_id)
        scene = await self._scene(context)
        job = scene.find(request.job_id)
        if job is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, f"job {request.job_id} is not known to Slurm")
        try:
            elsewhere, within_s = elsewhere_of(request, job, scene.state.nodes.names), within_of(request)
            check_size(elsewhere, scene, job)
            check_place(elsewhere, scene, job)
            found = self._controller.preemptions.begin(
                job, Cause.OPERATOR, "by hand", elsewhere, force=request.force, within_s=within_s
            )
        except WrongWishError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (PreemptionRefusedError, ResizeError) as error:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except JournalError as error:
            await _abort(context, grpc.StatusCode.INTERNAL, str(error))
        return preemption_record(found)

    async def ListPreemptions(
        self, request: admin_pb2.ListPreemptionsRequest, context: _Context
    ) -> admin_pb2.PreemptionList:
        """Those of the present and the past."""
        await self._check_private(context)
        preemptions = self._controller.preemptions
        if request.number:
            found = preemptions.find(request.number)
            return preemption_list([] if found is None else [found])
        return preemption_list(preemptions.newest(min(request.limit or MOST, MOST)))

    async def ListProfiles(self, request: admin_pb2.ListProfilesRequest, context: _Context) -> admin_pb2.ProfileList:
        """What was measured, by kind of job."""
        measurement = await self._measurement(context)
        known, running = measurement.known, self._viewer.running(measurement.known)
        return await _read(context, measurement, lambda store: profile_list(store, known, running, request.limit))

    async def GetProfile(self, request: admin_pb2.GetProfileRequest, context: _Context) -> admin_pb2.JobMeasurements:
        """What was measured of one job."""
        measurement = await self._measurement(context)
        await _check_id(context, request.job_id)
        scene, job_id = await self._scene(context), request.job_id
        job = scene.find(job_id)
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
                called=scene.called,
                window_s=measurement.window_s,
            )
            found = await _read(context, measurement, of_job)
        if found is None:
            await _abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"nothing was measured of job {job_id}: no node's agent has seen it train, or that was too long ago (of a task of "
                "an array that Slurm has forgotten, give the number that it knew as SLURM_JOB_ID)",
            )
        present = [each for run, each in self._viewer.running(measurement.known).items() if run.job_id == raw_id]
        if present:
            found.now.CopyFrom(present[-1])
        return found

    async def ExportProfiles(
        self, request: admin_pb2.ExportProfilesRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.SlowdownRows]:
        """Everything, as rows to fit from."""
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

    async def _measurement(self, context: _Context) -> Measuring:
        """Only for those who may see everybody's."""
        if not self._may_change:
            await _abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                f"only root and the controller's user may see what was measured of everybody's jobs, through {ADMIN_SOCKET}; "
                "`headway why JOBID` tells of a job that runs",
            )
        measurement = self._viewer.measurement
        if measurement is None:
            await _abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                "no agents are served, so nothing is measured; set agents_address in controller.toml, and run headway-agent on the "
                "nodes",
            )
        return measurement

    async def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: _Context
    ) -> AsyncIterator[admin_pb2.Event]:
        """Events from now on."""
        await self._check_private(context)
        watchers, uid = self._viewer.watchers, uid_of(context.peer())
        if not self._may_change and (watchers.total() >= _MAX_WATCHERS or watchers[uid] >= _MAX_WATCHERS_A_USER):
            most = f"{_MAX_WATCHERS_A_USER} calls of one user, {_MAX_WATCHERS} of all"
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many watch already ({most}); end one first")
        watchers[uid] += 1
        try:
            with self._controller.events.listen() as events:
                # The caller knows from the headers that it is listening, however long nothing happens.
                await cast("grpc.aio.ServicerContext[Any, Any]", context).send_initial_metadata(())
                while True:
                    event = await events.get()
                    yield admin_pb2.Event(time_s=event.time_s, kind=event.kind, job_id=event.job_id, text=event.text)
        finally:
            watchers[uid] -= 1

    async def _scene(self, context: _Context) -> Scene:
        scene = self._viewer.scene()
        if scene is None:
            await self._abort_not_ready(context)
        return scene

    async def _abort_not_ready(self, context: _Context) -> NoReturn:
        problem = self._controller.health.last_error or "Slurm has not answered yet; try again in a moment"
        context.set_trailing_metadata(((NOT_READY, "1"),))
        text = f"the controller is running, but has not read the cluster yet: {problem}"
        await _abort(context, grpc.StatusCode.UNAVAILABLE, text)

    async def _check_private(self, context: _Context) -> None:
        """Where Slurm hides jobs from other users, a socket that everybody can open hides them too."""
        if not self._everybody:
            return
        facts = self._controller.facts
        if facts is None:
            await self._abort_not_ready(context)
        if self._private():
            await _abort(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                "this cluster keeps jobs private (PrivateData in slurm.conf): only root, the controller's user and the group "
                "of `admin_group` in controller.toml may ask about them",
            )

    def _private(self) -> bool:
        """Whether Slurm hides jobs from other users, as far as is known."""
        facts = self._controller.facts
        said = "jobs" if facts is None else facts.settings.get("PrivateData", "")
        return bool({"jobs", "all"} & set(said.lower().split(",")))

    def _past(self, scene: Scene, job_id: str) -> Past:
        journal = self._controller.journal
        job = scene.find(job_id)
        if job is None:
            return Past(run=journal.last_run(job_id))
        released = (step.detail for step in journal.intents_of(job.key) if step.verb == "release")
        return Past(given_to_slurm=next(released, ""))

    def _as_of(self) -> str:
        """A word of caution while slurmctld does not answer."""
        controller = self._controller
        if not controller.health.slurm_away:
            return ""
        age_s = controller.clock.now() - controller.health.snapshot_time_s
        return f" As of {age_s:.0f} s ago: Slurm has not answered since."


async def _check_id(context: _Context, job_id: str) -> None:
    if not _JOB_ID.fullmatch(job_id):
        await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{job_id[:40]!r} is no job id; give 123, or 123_4")


async def _read(context: _Context, measurement: Measuring, work: Callable[[ProfileReader], T]) -> T:
    try:
        return await measurement.read(work)
    except ProfileStoreError as error:
        await _abort(context, grpc.StatusCode.INTERNAL, str(error))


async def _abort(context: _Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")
