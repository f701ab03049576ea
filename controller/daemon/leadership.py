"""Which of several controllers works: the one on the machine whose slurmctld is active. The others stand by.

A controller that stands by has no journal open, no lease, and no socket but that of its metrics: it only looks at slurmctld's
heartbeat, every second. It begins to work when the slurmctld of its machine becomes active. One that works ends when another
slurmctld has become active; systemd starts it again, and it stands by.

Invariant: no command that changes Slurm is sent if the last look says that another machine's slurmctld is active, or if no look
has succeeded for `_BLIND_S`: the disk with the heartbeat may be away here, and another slurmctld may have taken over. Two
controllers can send commands at the same time only within the interval of the looks.

Each controller has a journal of its own, which knows nothing of the jobs that another one has placed. The lease shows that no other
one can have worked meanwhile: it is renewed only by a controller that works, becomes stale within seconds, and is removed when
another slurmctld is seen to be active.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path

import structlog

from controller.admin.protocol import STANDBY_FILE
from controller.base.clock import Clock
from controller.base.errors import TurnLostError
from controller.base.lease import is_stale, read_lease
from controller.slurm.slurmctld_hosts import SlurmctldHosts
from policies.serving.runtime.sdnotify import Notifier

_LOOK_S = 1.0
"""Interval of the looks at the heartbeat, seconds."""
_BLIND_S = 10.0
"""Age of the last look above which nothing is changed in Slurm any more, seconds."""

log = structlog.get_logger(__name__)


class Leadership:
    """Tells whether the controller of this machine works. Invariant: the event loop never waits for the disk with the heartbeat."""

    def __init__(self, hosts: SlurmctldHosts | None, clock: Clock, lease_path: Path) -> None:
        """`hosts`: the machines of slurmctld; None if this controller is the only one, and always works."""
        self._hosts = hosts
        self._clock = clock
        self._lease_path = lease_path
        self.has_stood_by = False
        """True once another machine's slurmctld was seen to be active."""
        self._active: int | None = None
        self._seen_s: float | None = None
        self._reading: asyncio.Future[int | None] | None = None

    @property
    def works(self) -> bool:
        """True if the last look says that this controller works."""
        return self._hosts is None or (self._seen_s is not None and self._hosts.are_led_here(self._active))

    @property
    def active_host(self) -> str:
        """Name of the machine whose slurmctld is active; the primary's if that is not known, and empty if there is one."""
        return "" if self._hosts is None else self._hosts.names[self._active or 0]

    @property
    def cluster(self) -> str | None:
        """ClusterName of the controllers that stand by for one another; None if this one is the only one."""
        return None if self._hosts is None else self._hosts.cluster

    @property
    def others_may_have_worked(self) -> bool:
        """True if another controller may have worked since this one last did. To be read before the lease is renewed.

        The lease is on this machine, and none is left after a boot or after `systemctl stop`: the machine may have been away for
        any time. The same holds for a lease of another time, as when the clock was set.
        """
        if self._hosts is None:
            return False
        return self.has_stood_by or is_stale(read_lease(self._lease_path), self._clock.now())

    def check(self) -> None:
        """Raise TurnLostError if this controller may not change anything in Slurm."""
        if self._hosts is None:
            return
        if not self.works:
            raise TurnLostError(f"the slurmctld of {self.active_host} has become active, so the controller there works")
        if self._seen_s is None or self._clock.monotonic() - self._seen_s > _BLIND_S:
            raise TurnLostError(f"{self._hosts.heartbeat} does not answer, so another slurmctld may have become active")

    async def stand_by(
        self,
        runtime_dir: Path,
        notifier: Notifier,
        stop: asyncio.Event,
        meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> bool:
        """Wait until this controller works. Returns False if it is to end before.

        Meanwhile the file `standby` says which machine works, and systemd is notified of each look. The context `meanwhile` is
        entered when the controller begins to stand by: never if it works at once.
        """
        if self._hosts is None:
            return True
        note, last = runtime_dir / STANDBY_FILE, ""
        with ExitStack() as stack:
            stack.callback(_remove, note)
            while not stop.is_set():
                await self._look()
                if self.works:
                    return True
                if not last:
                    stack.enter_context(meanwhile())
                if self.active_host != last:
                    last = self.active_host
                    log.info("standing_by", active=last)
                    notifier.ready(f"stands by: the slurmctld of {last} is active")
                    with suppress(OSError):
                        note.write_text(f"{last}\n", encoding="utf-8")
                notifier.watchdog()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await stop.wait()
        return False

    async def watch(self, lost: Callable[[], None]) -> None:
        """Look at the heartbeat until cancelled; call `lost` once, when another slurmctld has become active."""
        lost_before = False
        while self._hosts is not None:
            await self._look()
            if not self.works and not lost_before:
                lost_before = True
                log.warning("other_slurmctld_active", active=self.active_host, effect="this controller ends")
                lost()
            await asyncio.sleep(_LOOK_S)
        await asyncio.Event().wait()

    async def _look(self) -> None:
        """Look at the heartbeat. A disk that does not answer is waited for in a thread, which does not keep the process from
        ending; the next look begins when it answers."""
        assert self._hosts is not None
        if self._reading is None:
            self._reading = _read_in_thread(self._hosts)
        done, _ = await asyncio.wait([self._reading], timeout=_LOOK_S)
        if not done:
            return
        active, self._reading = self._reading.result(), None
        # Before the first slurmctld has run there is no heartbeat. One that was there does not disappear by itself.
        if active is not None or self._active is None:
            self._active = active
            self._seen_s = self._clock.monotonic()
            if not self.works:
                self.has_stood_by = True
                self.withdraw_lease()

    def withdraw_lease(self) -> None:
        """Remove the lease if another controller may work now, so that the next start knows it even if it comes at once."""
        if self.has_stood_by:
            with suppress(OSError):
                self._lease_path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _read_in_thread(hosts: SlurmctldHosts) -> asyncio.Future[int | None]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[int | None] = loop.create_future()

    def give(active: int | None) -> None:
        if not answer.done():
            answer.set_result(active)

    def read() -> None:
        active = hosts.active()
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(give, active)

    threading.Thread(target=read, name="heartbeat of slurmctld", daemon=True).start()
    return answer
