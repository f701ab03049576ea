"""The calls of the Admin service that change something: another policy, and preemptions. Each is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controller.admin.messages import policy_info
from controller.admin.preemption_messages import (
    InvalidPreemptionError,
    check_place,
    check_size,
    constraint_of,
    preemption_record,
    save_limit_of,
)
from controller.admin.protocol import ADMIN_SOCKET, Reason
from controller.admin.refusal import CallRefused
from controller.admin.viewer import Viewer
from controller.base.audit import AuditLog, Caller
from controller.base.errors import JournalError, PolicyUnavailableError, PreemptionRefusedError
from controller.observe.resize import ResizeError
from controller.state.preemption import Cause
from policies.errors import PolicyError
from protos.headway.v1 import admin_pb2


class _Entry:
    """The entry of one request, until it has ended."""

    def __init__(self) -> None:
        self.outcome = "done"
        self.job_user = ""


class Changes:
    """Carries out changes for users. Invariant: every request is recorded with its outcome, refused ones too."""

    def __init__(self, viewer: Viewer, audit: AuditLog | None, *, allowed: bool) -> None:
        """`allowed` False: every change is refused. Without an audit log nothing is recorded."""
        self._viewer = viewer
        self._controller = viewer.controller
        self._audit = audit
        self._allowed = allowed

    async def use_policy(self, request: admin_pb2.UsePolicyRequest, caller: Caller) -> admin_pb2.PolicyInfo:
        """Let another policy server decide. Raises CallRefused."""
        with self._recorded(caller, "policy-use", {"address": request.address}) as entry:
            self._check_allowed("change the policy")
            try:
                await self._controller.use_policy(request.address)
            except PolicyUnavailableError as error:
                raise CallRefused(Reason.POLICY_UNUSABLE, f"{error}; the policy stays as it was") from error
            except PolicyError as error:
                raise CallRefused(Reason.INVALID_ADDRESS, str(error)) from error
            found = policy_info(self._controller.decider)
            entry.outcome = f"done: policy {found.name} decides"
        return found

    def preempt(self, request: admin_pb2.PreemptRequest, caller: Caller) -> admin_pb2.PreemptionRecord:
        """Request a job to save, and then stop it. Raises CallRefused."""
        with self._recorded(caller, action_of(request), details_of(request), request.job_id) as entry:
            self._check_allowed("preempt jobs")
            self._viewer.check_id(request.job_id)
            view = self._viewer.require_view()
            job = view.find(request.job_id)
            if job is None:
                unknown = f"Slurm does not know job {request.job_id}; `squeue` lists job ids"
                raise CallRefused(Reason.UNKNOWN_JOB, unknown)
            entry.job_user = job.user
            with _refusals():
                constraint, within_s = constraint_of(request, job, view.state.nodes.names), save_limit_of(request)
                check_size(constraint, view, job)
                check_place(constraint, view, job)
                found = self._controller.preemptions.begin(
                    job, Cause.OPERATOR, "by hand", constraint, force=request.force, within_s=within_s
                )
            entry.outcome = f"begun as preemption {found.number}"
        return preemption_record(found)

    def _check_allowed(self, what: str) -> None:
        if not self._allowed:
            only = f"only root and the controller's user may {what}, through {ADMIN_SOCKET}"
            raise CallRefused(Reason.ADMIN_ONLY, only)

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
