"""The Admin service for operators and users, on two Unix sockets in the runtime folder.

- `admin.sock`, mode 0600: every call. The kernel lets only the controller's own user and root open it.
- `status.sock`: every call except UsePolicy, ListProfiles and ExportProfiles; Preempt, GetProfile and RequestProfile only for jobs
  of the caller's own, and changes within a budget (`user_rights`). Open to the group `admin_group` (mode 0660), or to every user of
  the machine (0666) when none is set; then, on clusters whose slurm.conf keeps jobs private (PrivateData=jobs),
  a user sees jobs of their own alone. `access` has the rules, also for headway-web, which calls for other users.

The socket that the kernel let a caller open decides which calls it may make. Both are for users logged in on the controller's
machine. A Front accepts the connections of each: gRPC does not tell a server which user is at the other end of a Unix socket, and
the audit log has to name that user. The Front of status.sock also keeps users from occupying the connections of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from controller.admin.access import AccessRules
from controller.admin.call_limits import CallLimits
from controller.admin.front import MOST, Front
from controller.admin.protocol import ADMIN_SOCKET, STATUS_SOCKET
from controller.admin.report.job_notes import JobNotes
from controller.admin.report.log_reports import LogReports
from controller.admin.report.reports import Reports
from controller.admin.service import AdminService
from controller.admin.sockets import bind, group_id
from controller.admin.viewer import Viewer
from controller.agents.profile_requests import ProfileRequests
from controller.base.audit import AuditLog
from controller.contention.measurement import Measurement
from controller.contention.service import ContentionService
from controller.cycle.view.controller_view import ControllerView
from controller.forecast.estimate import Starts, no_starts
from controller.slurm.accounting import Accounting
from policies.serving.runtime.listen import end
from policies.serving.runtime.strict_requests import StrictRequests
from policies.serving.runtime.tasks.task_groups import Failed, task_group
from protos.headway.v1 import admin_pb2_grpc

_INNER_ADMIN, _INNER_STATUS = "admin-grpc.sock", "status-grpc.sock"
"""gRPC's own sockets behind the Fronts; mode 0600."""
_MAX_CALLS = 4096
"""Maximum number of calls at once: as many as all users' connections may have. `CallLimits` has those of one user."""
_MAX_CALLS_A_USER = 16
"""Maximum number of calls of one user at once, besides streams, where all users may connect."""
_GRACE_S = 0.5
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 10),
    # Unlimited connections would use up the controller's file descriptors; the Front limits those of one user.
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_connection_idle_ms", 30_000),  # a connection without a call
    ("grpc.server_handshake_timeout_ms", 5_000),  # a connection that never becomes HTTP/2
)


@asynccontextmanager
async def serve_admin(
    controller: ControllerView,
    folder: Path,
    group: str,
    *,
    measurement: Measurement | None = None,
    contention: ContentionService | None = None,
    audit: AuditLog | None = None,
    notes: JobNotes | None = None,
    accounting: Accounting | None = None,
    web_uid: int | None = None,
    profiling: ProfileRequests | None = None,
    starts: Starts = no_starts,
    log_reports: LogReports | None = None,
) -> AsyncIterator[None]:
    """Serve both sockets in that folder until the context ends.

    `group` may read (empty: every user may). Calls of `web_uid` may be for other users. Requests for changes are recorded in
    `audit`; `notes` and `accounting` are for reports; `profiling` requests profiles of agents; `starts` has estimates of starts;
    `log_reports` sends reports to jobs.
    Raises ConfigurationError when a socket is in use or cannot be made.
    """
    group_number = group_id(group)
    viewer = Viewer(controller, measurement, contention, audit, profiling, starts)
    reports = Reports(viewer, notes, accounting)
    rules = AccessRules(viewer, admin=True, group=None, web_uid=None)
    private = AdminService(viewer, reports, rules, any_job=True, audit=audit)
    rules = AccessRules(viewer, admin=False, group=group_number, web_uid=web_uid)
    public = AdminService(viewer, reports, rules, any_job=False, audit=audit)
    servers: list[grpc.aio.Server] = []
    # The few users that may open admin.sock need no limit of their own.
    failed, broken = controller.tasks.counting("admin-front"), controller.tasks.counting("admin-calls")
    fronts = Front(folder / _INNER_ADMIN, MOST, failed), Front(folder / _INNER_STATUS, failed=failed)
    try:
        bind(folder / ADMIN_SOCKET, 0o600, None, fronts[0].listen)
        bind(folder / STATUS_SOCKET, 0o666 if group_number is None else 0o660, group_number, fronts[1].listen)
        limits = CallLimits(_MAX_CALLS, fronts[0].cut), CallLimits(_MAX_CALLS_A_USER, fronts[1].cut)
        servers.append(await _serve(private, folder / _INNER_ADMIN, broken, limits[0]))
        servers.append(await _serve(public, folder / _INNER_STATUS, broken, limits[1]))
        for front in fronts:
            await front.start()
        async with _sending(controller, log_reports, viewer, notes):
            yield
    finally:
        try:
            async with task_group() as ending:
                for server in servers:
                    ending.create_task(end(server, _GRACE_S))
        finally:
            try:
                await fronts[0].close()
            finally:
                await fronts[1].close()


@asynccontextmanager
async def _sending(
    controller: ControllerView, log_reports: LogReports | None, viewer: Viewer, notes: JobNotes | None
) -> AsyncIterator[None]:
    """Send reports to jobs within the context, without Slurm's accounting: a slow database would delay users' own requests."""
    if log_reports is None:
        yield
        return
    reports = Reports(viewer, notes)
    async with controller.tasks.running("log-reports", lambda: log_reports.run(viewer, reports)):
        yield


async def _serve(service: AdminService, path: Path, failed: Failed, limits: CallLimits) -> grpc.aio.Server:
    interceptors = limits, StrictRequests(failed)  # the first gets a call first
    server = grpc.aio.server(interceptors=interceptors, maximum_concurrent_rpcs=_MAX_CALLS, options=_OPTIONS)
    admin_pb2_grpc.add_AdminServicer_to_server(service, server)
    bind(path, 0o600, None, server.add_insecure_port)
    await server.start()
    return server
