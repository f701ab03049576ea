"""The watchdog: frees what Headway holds when the controller is away.

It shares no process with the controller; a systemd timer (or `--every`) runs it. New jobs are no longer held once the
lease is stale, job_submit.lua sees to that; this is for the jobs that were held before. Invariant: it touches only jobs
that carry HOLD_MARK, that no user holds, and only while the lease stays stale.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from controller.clock import Clock, RealClock
from controller.errors import HeadwayError, JournalError, SlurmError
from controller.lease import is_stale, read_lease
from controller.slurm.client import HOLD_MARK, USER_HOLD_MARK, Phase

if TYPE_CHECKING:
    from controller.config import ControllerSettings
    from controller.slurm.client import JobKey, ResourceRequest, SlurmClient, SlurmJob

log = structlog.get_logger(__name__)

_MIN_CONFIRM_S = 2.0
_CONFIRM_BEATS = 3

Originals = Callable[[], "Mapping[JobKey, ResourceRequest]"]
"""What jobs that the controller has pinned asked for before; may raise JournalError."""


@dataclass(frozen=True, slots=True)
class WatchdogReport:
    """What one look found and did."""

    away: bool
    """The controller's lease was stale, and stayed stale."""
    released: tuple[JobKey, ...] = ()
    still_held: tuple[JobKey, ...] = ()
    """Held by Headway, and could not be released; the next look tries again."""


class Watchdog:
    """One look: is the controller away, and if so, release what it holds.

    A lease counts as stale only when it also does not change during `confirm_s`, measured on a clock that does not jump:
    when the machine's clock is set, or the machine wakes from sleep, the newest lease of a healthy controller looks old.
    """

    def __init__(
        self,
        client: SlurmClient,
        lease_path: Path,
        originals: Originals,
        clock: Clock,
        confirm_s: float,
        batch: int = 100,
    ) -> None:
        """`batch` jobs are released between two looks at the lease: a controller that comes back keeps the rest."""
        self._client = client
        self._lease_path = lease_path
        self._originals = originals
        self._clock = clock
        self._confirm_s = confirm_s
        self._batch = batch

    async def look(self) -> WatchdogReport:
        """Look once. Raises SlurmUnavailableError when slurmctld does not answer."""
        if not await self._away():
            return WatchdogReport(away=False)
        held = [job for job in (await self._client.snapshot()).jobs if is_held_by_headway(job)]
        if not held:
            return WatchdogReport(away=True)
        log.warning("controller_away", lease=str(self._lease_path), held=len(held))
        originals = self._known_originals()
        released: list[JobKey] = []
        for start in range(0, len(held), self._batch):
            if not self._stale_now():
                log.info("controller_back", left_held=len(held) - start)
                return WatchdogReport(away=False, released=tuple(released))
            released += await self._free([job.key for job in held[start : start + self._batch]], originals)
        done = set(released)
        still = await self._still_held([job.key for job in held if job.key not in done])
        for key in still:
            log.error("still_held", job=key.job_id, mend=f"scontrol release {key.job_id}")
        return WatchdogReport(away=True, released=tuple(released), still_held=still)

    def _stale_now(self) -> bool:
        return is_stale(read_lease(self._lease_path), self._clock.now())

    async def _away(self) -> bool:
        first = read_lease(self._lease_path)
        if not is_stale(first, self._clock.now()):
            return False
        await self._clock.sleep(self._confirm_s)
        second = read_lease(self._lease_path)
        return second == first and is_stale(second, self._clock.now())

    def _known_originals(self) -> Mapping[JobKey, ResourceRequest]:
        try:
            return self._originals()
        except JournalError as error:
            log.error("journal_unreadable", problem=str(error), effect="jobs start on the nodes chosen for them last")
            return {}

    async def _free(self, keys: Sequence[JobKey], originals: Mapping[JobKey, ResourceRequest]) -> list[JobKey]:
        """Give pinned jobs their own request back, release, and take the mark off. Returns the released ones."""
        pinned = {key: originals[key] for key in keys if key in originals}
        unusable = await self._unpin(pinned) if pinned else set()
        ready = [key for key in keys if key not in unusable]
        failures = await self._client.release(ready)
        for key, failure in failures.items():
            if not failure.gone:
                log.error("release_failed", job=key.job_id, problem=failure.message)
        released = [key for key in ready if key not in failures]
        # The mark goes last: a held job without it would never be found again.
        for key, failure in (await self._client.unmark(released, HOLD_MARK)).items():
            log.warning("mark_left", job=key.job_id, problem=failure.message)
        log.warning("released", jobs=[key.job_id for key in released], own_request_back=len(pinned) - len(unusable))
        return released

    async def _unpin(self, pinned: Mapping[JobKey, ResourceRequest]) -> set[JobKey]:
        """Jobs that must not be released: their own request could not be given back, and what is left asks for fewer GPUs.

        One that still asks for all its GPUs is better started on the nodes chosen for it than left held.
        """
        failures = {key: why for key, why in (await self._client.unpin(pinned)).items() if not why.gone}
        if not failures:
            return set()
        found = await self._client.read(list(failures))
        unusable = set()
        for key, failure in failures.items():
            job = found.get(key)
            if job is not None and _num_gpus(job.request) != _num_gpus(pinned[key]):
                unusable.add(key)
            log.error("own_request_not_restored", job=key.job_id, problem=failure.message, released=key not in unusable)
        return unusable

    async def _still_held(self, keys: Sequence[JobKey]) -> tuple[JobKey, ...]:
        if not keys:
            return ()
        found = await self._client.read(keys)
        return tuple(key for key in keys if key in found and is_held_by_headway(found[key]))


def is_held_by_headway(job: SlurmJob) -> bool:
    """Whether this job waits only because Headway holds it."""
    marks = job.marks
    return job.phase is Phase.PENDING and job.held and HOLD_MARK in marks and USER_HOLD_MARK not in marks


def _num_gpus(request: ResourceRequest) -> int:
    """GPUs of the whole job, on the fewest nodes that it asks for."""
    return (
        (request.gpus_per_job or 0)
        + (request.gpus_per_node or 0) * request.min_nodes
        + (request.gpus_per_task or 0) * request.num_tasks
    )


def run_watchdog(settings: ControllerSettings, every_s: float | None) -> int:
    """Look once, or every so many seconds until SIGTERM. Returns the exit status: 0, or 1 when something stays held or
    Slurm could not be asked."""
    return asyncio.run(_look_once(settings) if every_s is None else _keep_looking(settings, every_s))


async def _look_once(settings: ControllerSettings) -> int:
    if settings.slurm_client == "embedded":
        return 0  # an emulated Slurm lives and dies with its controller
    if not is_stale(read_lease(settings.lease_path), RealClock().now()):
        return 0  # the usual case, twice a minute: nothing of Slurm or the journal is loaded
    from controller.journal import read_originals
    from controller.slurm.select import command_line_client

    try:
        watchdog = Watchdog(
            client=command_line_client(settings),  # the one client that needs nothing but Slurm itself
            lease_path=settings.lease_path,
            originals=lambda: read_originals(settings.journal_path),
            clock=RealClock(),
            confirm_s=confirm_s(settings.heartbeat_interval_s),
        )
        report = await watchdog.look()
    except SlurmError as error:
        log.error("slurm_unavailable", problem=str(error))
        return 1
    return 1 if report.still_held else 0


async def _keep_looking(settings: ControllerSettings, every_s: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    status = 0
    while not stop.is_set():
        try:
            status = await _look_once(settings)
        except HeadwayError as error:  # the next look may fare better
            log.error("look_failed", problem=str(error))
            status = 1
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await stop.wait()
    return status


def confirm_s(heartbeat_interval_s: float) -> float:
    """How long a lease must stay as it is before it is taken for stale, seconds: time for some heartbeats."""
    return max(_MIN_CONFIRM_S, _CONFIRM_BEATS * heartbeat_interval_s)
