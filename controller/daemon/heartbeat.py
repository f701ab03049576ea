"""The heartbeat: it renews the lease and systemd's watchdog only while cycles succeed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.lease import Lease, write_lease
from controller.cycle.view.health import Health
from controller.daemon.pacing.intervals import MAX_BACKOFF_S, Intervals
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.observe.partition_sizes import PartitionSizes
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.priorities.weights import MULTIFACTOR
from controller.slurm.user_holds import HoldFolder
from policies.serving.runtime.sdnotify import Notifier


class Heartbeat:
    """Renews the lease. Invariant: a lease that is not renewed becomes stale, and Slurm continues alone."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        health: Health,
        intervals: Intervals,
        clock: Clock,
        holds: HoldFolder,
        report: Callable[[str], None],
        snapshot: Callable[[], SlurmSnapshot | None],
        slurm_setting: Callable[[str], str | None],
    ) -> None:
        """`report` is called with the problem when the lease cannot be written; `snapshot` returns the newest one, and
        `slurm_setting` a setting of slurm.conf, None if it is not known."""
        self._settings = settings
        self._health = health
        self._intervals = intervals
        self._clock = clock
        self._holds = holds
        self._report = report
        self._snapshot = snapshot
        self._slurm_setting = slurm_setting
        self._sizes = PartitionSizes()

    async def run(self, wake: WakePipe, notifier: Notifier) -> None:
        """Renew the lease while cycles succeed; notify systemd while cycles end, successful or not. Runs until cancelled."""
        ready = False
        while True:
            now_s, good_s, cycle_s = self._clock.monotonic(), self._health.good_at_s, self._health.last_cycle_s
            patience_s = self._intervals.patience_s
            if good_s is not None and now_s - good_s <= patience_s:
                try:
                    self._renew_lease(wake, self._clock.now())
                except (OSError, ValueError) as error:
                    self._report(f"{self._settings().lease_path}: the lease cannot be written: {error}")
            if cycle_s is not None and now_s - cycle_s <= patience_s + MAX_BACKOFF_S:
                notifier.watchdog()
                if not ready:
                    ready = True
                    notifier.ready()
            await asyncio.sleep(self._settings().heartbeat_interval_s)

    def _renew_lease(self, wake: WakePipe, now_s: float) -> None:
        settings = self._settings()
        lease = Lease(
            time_s=int(now_s),
            stale_after_s=settings.stale_after_s,
            partitions=settings.partitions,
            controller_uid=os.getuid(),
            wake_room_bytes=wake.room_bytes,
            holds_room=self._holds.room,
            sizes=self._sizes.of(self._snapshot(), settings.partitions),
            nice_keeps_holds=self._slurm_setting("PriorityType") == MULTIFACTOR,
        )
        write_lease(settings.lease_path, lease)
