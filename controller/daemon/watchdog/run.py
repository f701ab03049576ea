"""Checks of the watchdog at regular times: a check reads the settings, and looks at Slurm only if the lease is stale."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from controller.base.clock import RealClock
from controller.base.errors import SlurmError
from controller.base.lease import is_stale, read_lease
from controller.base.turn import watchdog_turn
from controller.base.watchdog_mark import mark_check
from controller.daemon.watchdog.watchdog import Watchdog
from controller.slurm.user_holds import HoldFolder

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.daemon.watchdog.requeued import Placed
    from controller.slurm.model.job import JobKey, ResourceRequest

log = structlog.get_logger(__name__)

_MIN_CONFIRM_S = 2.0
_CONFIRM_BEATS = 3
_PATIENCE = 3
"""Factor on slurm_timeout_s, which may be longer here, because no other program of Headway waits for Slurm."""


def run_watchdog(settings: Callable[[], tuple[ControllerSettings, str]], every_s: float | None) -> int:
    """Check once, or every so many seconds until SIGTERM. Returns the exit status: 0, or 1 when a job stays held, Slurm did
    not answer, or the settings have an error.

    `settings` are read before every check; see `watchdog_settings`.
    """
    return asyncio.run(check_once(settings) if every_s is None else _check_regularly(settings, every_s))


async def check_once(read: Callable[[], tuple[ControllerSettings, str]]) -> int:
    """Check once, and return the exit status. Never raises: an unexpected error ends this check, and the next may succeed."""
    try:
        settings, problem = read()
        mark_check(settings.runtime_dir)
        if problem:
            log.error(
                "settings_not_in_order", problem=problem, effect="valid keys are used, the others have their defaults"
            )
        return max(await _check(settings), 1 if problem else 0)
    except SlurmError as error:
        log.error("slurm_unavailable", problem=str(error))
    except Exception as error:
        log.exception("check_failed", problem=f"{type(error).__name__}: {error}")
    return 1


async def _check(settings: ControllerSettings) -> int:
    if settings.slurm_client == "embedded":
        return 0  # an emulated Slurm ends with its controller
    if not is_stale(read_lease(settings.lease_path), RealClock().now()):
        return 0  # the usual case, twice a minute: neither Slurm's client nor the journal is loaded
    if settings.stand_by:
        from controller.daemon.watchdog.standing_by import stands_by

        if stands_by(settings, RealClock().now()):
            return 0
    from controller.slurm.select import command_line_client

    patient = settings.model_copy(update={"slurm_timeout_s": _PATIENCE * settings.slurm_timeout_s})
    clock = RealClock()
    turn = watchdog_turn(settings.runtime_dir, settings.slurm_timeout_s, clock)
    # The only client that needs nothing except Slurm itself.
    client = command_line_client(patient, only_marked=True)
    client.before_change = turn.check
    watchdog = Watchdog(
        client=client,
        lease_path=settings.lease_path,
        originals=lambda: _originals(settings),
        clock=clock,
        confirm_s=confirm_s(settings.heartbeat_interval_s),
        turn=turn,
        holds=HoldFolder(settings.holds_path),
        placed=lambda: _placed(settings),
    )
    return 0 if (await watchdog.check()).complete else 1


def _originals(settings: ControllerSettings) -> Mapping[JobKey, ResourceRequest]:
    from controller.state.journal_salvage import read_originals

    return read_originals(settings.journal_path)


def _placed(settings: ControllerSettings) -> Placed:
    from controller.state.journal_salvage import read_placed

    return read_placed(settings.journal_path)


async def _check_regularly(read: Callable[[], tuple[ControllerSettings, str]], every_s: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    status = 0
    while not stop.is_set():
        status = await check_once(read)
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await stop.wait()
    return status


def confirm_s(heartbeat_interval_s: float) -> float:
    """Return the time for which a lease must stay unchanged before it counts as stale, seconds: some heartbeats."""
    return max(_MIN_CONFIRM_S, _CONFIRM_BEATS * heartbeat_interval_s)
