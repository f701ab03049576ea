"""The calls of the Admin service that change something: another policy, and preemptions. Each is recorded in the audit log.

Callers of admin.sock may change everything, and callers of status.sock jobs of their own (`user_rights`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from controller.admin.access import Access
from controller.admin.messages import policy_info
from controller.admin.preemption_messages import (
    InvalidPreemptionError,
    check_growth,
    check_left_to_slurm,
    check_place,
    check_size,
    constraint_of,
    preemption_record,
    save_limit_of,
)
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused, no_agents
from controller.admin.user_rights import UserRights, admin_only
from controller.admin.viewer import Viewer
from controller.agents.profile_requests import MOST_STEPS
from controller.base.audit import AuditLog, Caller
from controller.base.errors import JournalError, PolicyUnavailableError, PreemptionRefusedError
from controller.observe.resize import ResizeError
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, Preemption
from policies.errors import PolicyError
from protos.headway.v1 import admin_pb2, agent_pb2

_PROFILE_STEPS = 20
"""Length of a requested profile where jobs are not profiled at their start, in optimizer steps."""


class _Entry:
    """The entry of one request, until it has ended."""

    def __init__(self) -> None:
        self.outcome = "done"
        self.job_user = ""


class Changes:
    """Carries out changes for users. Invariant: every request is recorded with its outcome, refused ones too."""

    def __init__(self, viewer: Viewer, audit: AuditLog | None, *, any_job: bool) -> None:
        """`any_job`: the callers may change everything; else jobs of their own. Without an audit log nothing is recorded."""
        self._viewer = viewer
        self._controller = viewer.controller
        self._audit = audit
        self._any_job = any_job
        self._rights = UserRights(viewer)

    async def use_policy(self, request: admin_pb2.UsePolicyRequest, caller: Caller) -> admin_pb2.PolicyInfo:
        """Let another policy server decide. Raises CallRefused."""
        with self._recorded(caller, "policy-use", {"address": request.address}) as entry:
            if not self._any_job:
                raise admin_only("change the policy")
            try:
                await self._controller.use_policy(request.address)
            except PolicyUnavailableError as error:
                raise CallRefused(Reason.POLICY_UNUSABLE, f"{error}; the policy stays as it was") from error
            except PolicyError as error:
                raise CallRefused(Reason.INVALID_ADDRESS, str(error)) from error
            found = policy_info(self._controller.decider)
            entry.outcome = f"done: policy {found.name} decides"
        return found

    async def preempt(
        self, request: admin_pb2.PreemptRequest, caller: Caller, access: Callable[[], Awaitable[Access]]
    ) -> admin_pb2.PreemptionRecord:
        """Request a job to save, and then stop it. `access` returns the jobs that the caller may see. Raises CallRefused."""
        action = action_of(request)
        with self._recorded(caller, action, details_of(request), request.job_id) as entry:
            job = await self._job(request.job_id, f"{action} other users' jobs", caller, access)
            entry.job_user = job.user
            if self._any_job:
                found = preemption_record(self._begin(request, job))
            else:
                with self._rights.spending(caller, action, request.job_id) as budget:
                    found = preemption_record(self._begin(request, job))
                found.user_changes_left = budget.left
            entry.outcome = f"begun as preemption {found.number}"
        return found

    async def profile(
        self, request: admin_pb2.RequestProfileRequest, caller: Caller, access: Callable[[], Awaitable[Access]]
    ) -> admin_pb2.RequestedProfile:
        """Request a new profile of a running job. Raises CallRefused."""
        steps = request.steps if request.HasField("steps") else self._steps()
        with self._recorded(caller, "profile", {"steps": steps}, request.job_id) as entry:
            job = await self._job(request.job_id, "profile other users' jobs", caller, access)
            entry.job_user = job.user
            if self._any_job:
                found = await self._request_profile(job, steps)
            else:
                with self._rights.spending(caller, "profile", request.job_id) as budget:
                    found = await self._request_profile(job, steps)
                found.user_changes_left = budget.left
            entry.outcome = f"requested on {', '.join(found.nodes)}"
        return found

    def _steps(self) -> int:
        return self._controller.settings.agents_profile_steps or _PROFILE_STEPS

    async def _request_profile(self, job: SlurmJob, steps: int) -> admin_pb2.RequestedProfile:
        job_id = job.key.job_id
        if self._viewer.profiling is None:
            raise no_agents("no job can be profiled")
        if not 1 <= steps <= MOST_STEPS:
            raise CallRefused(Reason.NOT_PROFILABLE, f"{steps} steps are not possible; give 1 to {MOST_STEPS}")
        if job.phase is not Phase.RUNNING or job.raw_id is None:
            raise CallRefused(Reason.NOT_PROFILABLE, f"job {job_id} does not run ({job.state}), so it makes no steps")
        name = agent_pb2.JobName(job_id=job.raw_id, restart=job.restarts)
        answers = await self._viewer.profiling.request([share.node for share in job.allocated], name, steps)
        problems = [f"{node}: {problem}" for node, problem in answers.items() if problem]
        nodes = [node for node, problem in answers.items() if not problem]
        if not nodes:
            raise CallRefused(Reason.NOT_PROFILABLE, f"job {job_id} cannot be profiled now: {'; '.join(problems[:5])}")
        return admin_pb2.RequestedProfile(job_id=job_id, steps=steps, nodes=nodes, problems=problems)

    def _begin(self, request: admin_pb2.PreemptRequest, job: SlurmJob) -> Preemption:
        view = self._viewer.require_view()
        with _refusals():
            constraint, within_s = constraint_of(request, job, view.state.nodes.names), save_limit_of(request)
            check_left_to_slurm(constraint, view, job)
            check_size(constraint, view, job)
            if not self._any_job:
                check_growth(constraint, view, job)
            check_place(constraint, view, job)
            cause = Cause.OPERATOR if self._any_job else Cause.USER
            return self._controller.preemptions.begin(
                job, cause, "by hand", constraint, force=request.force, within_s=within_s
            )

    async def _job(self, job_id: str, what: str, caller: Caller, access: Callable[[], Awaitable[Access]]) -> SlurmJob:
        """Return a job that the caller may change. Raises CallRefused."""
        if not self._any_job:
            self._rights.check_allowed(what)
        seen = await access()
        self._viewer.check_id(job_id)
        job = self._viewer.require_view().find(job_id)
        if not self._any_job:
            self._rights.check_own(job_id, job, caller, seen)
        if job is None:
            raise CallRefused(Reason.UNKNOWN_JOB, f"Slurm does not know job {job_id}; `squeue` lists job ids")
        return job

    @contextmanager
    def _recorded(self, caller: Caller, action: str, details: dict[str, Any], job_id: str = "") -> Iterator[_Entry]:
        """Record the request when it ends, in whichever way."""
        entry, refused = _Entry(), False
        try:
            yield entry
        except CallRefused as error:
            entry.outcome, refused = f"refused ({error.reason.value}): {error}", True
            raise
        except BaseException as error:  # the caller has left, or the controller ends, or a bug
            entry.outcome = f"not known: it was broken off ({type(error).__name__})"
            raise
        finally:
            if self._audit is not None:
                self._audit.record(
                    caller, action, entry.outcome, job_id=job_id[:40], job_user=entry.job_user, details=details,
                    refused=refused,
                )  # fmt: skip


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the errors of a preemption into refusals of the call."""
    try:
        yield
    except InvalidPreemptionError as error:
        raise CallRefused(Reason.INVALID_PREEMPTION, str(error)) from error
    except PreemptionRefusedError as error:
        raise CallRefused(Reason.NOT_PREEMPTIBLE, str(error)) from error
    except ResizeError as error:
        raise CallRefused(Reason.NOT_RESIZABLE, str(error)) from error
    except JournalError as error:
        raise CallRefused(Reason.JOURNAL_FAILED, str(error)) from error


def action_of(request: admin_pb2.PreemptRequest) -> str:
    """Return the action as the command line names it: preempt, move or resize."""
    if request.HasField("gpus"):
        return "resize"
    return "move" if request.away or request.only or request.avoid else "preempt"


def details_of(request: admin_pb2.PreemptRequest) -> dict[str, Any]:
    """Return the fields of the request that are set, but for the job."""
    found: dict[str, Any] = {"only": list(request.only), "avoid": list(request.avoid)}
    found |= {"away": request.away, "force": request.force}
    found |= {name: getattr(request, name) for name in ("gpus", "within_s") if request.HasField(name)}
    return {name: value for name, value in found.items() if value}
