"""Assembles the controller by its settings: the only module that knows every part."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path

import structlog

from controller.admin.metrics.exporter import serve_metrics, serve_standby_metrics
from controller.admin.metrics.metered_client import MeteredClient
from controller.admin.report.job_notes import JobNotes
from controller.admin.report.log_reports import LogReports
from controller.admin.serve import serve_admin
from controller.agents.profile_requests import ProfileRequests
from controller.agents.service import serve_agents
from controller.agents.topology import load_topology
from controller.base.audit import AuditLog
from controller.base.clock import RealClock
from controller.base.config import RESTART_KEYS, ControllerSettings, load_settings
from controller.base.errors import ConfigurationError, HeadwayError
from controller.base.events import EventLog, events_file
from controller.base.lease import forget_lease_of_another_user
from controller.base.turn import controller_turn
from controller.contention.measurement import measure
from controller.contention.reprofiling import profile_beside_others
from controller.contention.service import judge_contention
from controller.cycle.decision.decider import Decider
from controller.daemon.audit_trail import AuditTrail
from controller.daemon.daemon import Controller
from controller.daemon.leadership import Leadership
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.daemon.policy_users import trusted_users
from controller.daemon.slurm_order import read_slurm_order
from controller.daemon.stop_signals import stop_signals
from controller.daemon.web_user import web_uid
from controller.forecast.service import forecast_starts
from controller.notify.service import send_notifications
from controller.observe.gpu_layouts import read_layouts
from controller.preempt.service import run_preemptions
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.select import open_accounting, open_client
from controller.slurm.slurmctld_hosts import read_slurmctld_hosts
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from policies.api import load_policy, parse_policy
from policies.serving.client import PolicyClient
from policies.serving.runtime.logs import set_up_logging
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.supervise import Tasks

log = structlog.get_logger(__name__)


async def run_controller(path: Path) -> None:
    """Run until SIGTERM. Raises HeadwayError when the controller cannot start."""
    settings = load_settings(path)
    set_up_logging(settings.log_level, settings.log_format)
    _make_runtime_dir(settings)
    clock, notifier = RealClock(), Notifier()
    leadership = Leadership(read_slurmctld_hosts(settings), clock, settings.lease_path)
    if not await _works_now(leadership, settings, notifier):
        log.info("stopped")
        return
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(closing(open_journal(settings.journal_path, leadership)))
        turn = controller_turn(settings.runtime_dir, settings.slurm_timeout_s, clock, permitted=leadership.check)
        client = MeteredClient(await open_client(settings, before_change=turn.check), clock)
        stack.push_async_callback(client.close)
        tasks = Tasks(monotonic=clock.monotonic, now=clock.now)
        connect = partial(PolicyClient, trusted=trusted_users(settings), failed=tasks.counting("relay"))
        decider = Decider(
            endpoint=connect(settings.policy_address),
            fallback=load_policy(*parse_policy(settings.fallback_policy)),
            deadline_s=settings.policy_deadline_s,
            clock=clock,
        )
        wake = stack.enter_context(closing(WakePipe(settings.wake_path)))
        HoldFolder(settings.holds_path).make()
        events = EventLog(clock, events_file(settings.events_path))
        audit = AuditLog(clock, settings.audit_path)
        trail = AuditTrail(audit)
        controller = Controller(
            settings,
            client,
            decider,
            journal,
            clock,
            connect=connect,
            events=events,
            audit=trail,
            turn=turn,
            tasks=tasks,
        )
        await _serve_beside(stack, controller, audit, leadership.cluster)
        await stack.enter_async_context(
            controller.tasks.running("leadership", lambda: leadership.watch(lost=controller.stop))
        )
        stack.enter_context(stop_signals(controller.stop, lambda: _reload(path, controller, notifier, trail)))
        log.info("started", partitions=settings.partitions, policy=settings.policy_address)
        await controller.run(wake, notifier)
        leadership.withdraw_lease()  # the last cycle may have renewed it
        notifier.stopping()
    log.info("stopped")


async def _works_now(leadership: Leadership, settings: ControllerSettings, notifier: Notifier) -> bool:
    """Stand by until this controller works; meanwhile export that it stands by. Returns False after SIGTERM.

    When it works, no lease of a controller of another user is left.
    """
    stop = asyncio.Event()
    metrics = partial(serve_standby_metrics, settings.metrics_address, leadership.cluster or "")
    with stop_signals(stop.set, lambda: log.info("reload_not_needed", reason="this controller stands by")):
        works = await leadership.stand_by(settings.runtime_dir, notifier, stop, metrics)
    if works:
        forget_lease_of_another_user(settings.lease_path, os.getuid())
    return works


def open_journal(path: Path, leadership: Leadership) -> Journal:
    """Open the journal, which may lack what another controller has placed meanwhile. To be called before the lease is renewed."""
    journal = Journal(path)
    if leadership.others_may_have_worked:
        log.warning("journal_may_be_old", reason="another controller may have placed jobs since it was written")
        journal.distrust(even_if_new=leadership.has_stood_by)
    return journal


async def _serve_beside(stack: AsyncExitStack, controller: Controller, audit: AuditLog, cluster: str | None) -> None:
    """Start the services around the cycles: agents, measurement, preemptions, contention threshold, estimates, Admin, metrics."""
    settings, tasks, knowledge = controller.settings, controller.tasks, controller.knowledge
    window_s = settings.agents_window_s

    def newest_snapshot() -> SlurmSnapshot | None:
        return controller.newest_snapshot

    agents = await stack.enter_async_context(serve_agents(settings, newest_snapshot, tasks))
    knowledge.set_gpu_layouts(read_layouts(settings.cluster_file))
    await stack.enter_async_context(load_topology(knowledge.set_topology, agents, controller.client.topology, tasks))
    await stack.enter_async_context(
        read_slurm_order(lambda: controller.facts, controller.client.shares, knowledge.set_priorities, tasks)
    )
    measurement = await stack.enter_async_context(
        measure(
            newest_snapshot, knowledge.set_measured, agents, settings, window_s, tasks, racks=lambda: knowledge.racks
        )
    )
    profiling = None if agents is None else ProfileRequests(agents)
    await stack.enter_async_context(
        profile_beside_others(
            lambda: controller.settings, newest_snapshot, measurement, profiling, controller.clock, tasks
        )
    )
    await stack.enter_async_context(run_preemptions(controller.preemptions, agents, tasks))
    notes = JobNotes(controller.journal.job_notes, controller.preemptions.steps_done)
    controller.listeners.append(notes.note)
    contention = await stack.enter_async_context(judge_contention(controller, window_s, agents, tasks))
    forecasts = await stack.enter_async_context(forecast_starts(controller))
    await stack.enter_async_context(
        serve_admin(
            controller,
            settings.runtime_dir,
            settings.admin_group,
            measurement=measurement,
            contention=contention,
            audit=audit,
            notes=notes,
            accounting=open_accounting(settings),
            web_uid=web_uid(settings),
            profiling=profiling,
            starts=forecasts.of,
            log_reports=None if agents is None else LogReports(agents, controller.clock.monotonic),
        )
    )
    receivers = stack.enter_context(send_notifications(controller, settings))
    stack.enter_context(
        serve_metrics(controller, settings.metrics_address, measurement, receivers, cluster, forecasts=forecasts)
    )


def _reload(path: Path, controller: Controller, notifier: Notifier, trail: AuditTrail) -> None:
    """Apply the settings that can change while running; a bad file changes nothing."""
    notifier.reloading()
    try:
        fresh = load_settings(path)
    except HeadwayError as error:
        log.error("reload_refused", problem=str(error))
        trail.note_refused_reload(str(error))
    else:
        before = controller.settings
        fixed = [key for key in RESTART_KEYS if getattr(fresh, key) != getattr(controller.settings, key)]
        if fixed:
            log.warning("reload_needs_restart", keys=sorted(fixed))
        kept = {key: getattr(controller.settings, key) for key in RESTART_KEYS}
        settings = fresh.model_copy(update=kept)
        set_up_logging(settings.log_level, settings.log_format)
        controller.reload(settings)
        trail.note_reload(before, settings, sorted(fixed))
        log.info("reloaded", path=str(path))
    notifier.ready()


def _make_runtime_dir(settings: ControllerSettings) -> None:
    try:
        settings.runtime_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{settings.runtime_dir}: cannot be made: {error}; make it, owned by the controller's user, "
            "or set runtime_dir to a folder that it may write"
        ) from error
    if not os.access(settings.runtime_dir, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{settings.runtime_dir}: uid {os.getuid()} may not write to this folder; change its owner"
        )
