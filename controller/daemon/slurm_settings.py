"""Slurm's version and settings, read at the start and every minute; the controller's own rights are checked against them."""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Awaitable, Callable

import structlog

from controller.base.clock import Clock
from controller.base.errors import ConfigurationError, SlurmReplyError
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.client import SlurmClient, SlurmFacts
from controller.slurm.user_holds import HoldFolder
from policies.serving.runtime.name_service import user_account
from policies.serving.runtime.tasks.backoff import Backoff, Retries

log = structlog.get_logger(__name__)

_EVERY_S = 60.0
"""Interval between two readings, seconds: slurmctld answers `scontrol show config` at once, and its answer seldom changes."""
_GRANTS = Backoff(first_s=5.0, longest_s=300.0)
"""Pauses after a failure to let SlurmUser write: the name service may not have answered yet, early after a boot."""


class SlurmSettings:
    """Keeps Slurm's version and settings. Invariant: they are at most a minute old while Slurm answers."""

    def __init__(
        self,
        client: SlurmClient,
        clock: Clock,
        holds: HoldFolder,
        account: Callable[[str], Awaitable[pwd.struct_passwd]] = user_account,
    ) -> None:
        """`account` returns a user's account; raises KeyError or OSError."""
        self._client = client
        self._clock = clock
        self._holds = holds
        self._account = account
        self._read_at_s = -math.inf
        self._has_rights = False
        """True when Slurm has named SlurmUser, whose rights the controller has."""
        self._grant_at_s = -math.inf
        """Time of the next attempt to let SlurmUser write; infinite when it may."""
        self._grants = Retries(_GRANTS)
        self._grant_problem = ""
        self.facts: SlurmFacts | None = None
        """None before the first answer."""

    def expire(self) -> None:
        """Read the settings again at the next opportunity."""
        self._read_at_s = -math.inf
        if self._grant_at_s < math.inf:
            self._grant_at_s = -math.inf

    async def read(self, wake: WakePipe) -> None:
        """Read the settings, if they are due: `scontrol reconfigure` may have changed them (PrivateData).

        Raises ConfigurationError when Slurm would refuse the controller's changes, and SlurmError at the first reading.
        """
        now_s = self._clock.monotonic()
        if self.facts is None or now_s - self._read_at_s >= _EVERY_S:
            try:
                facts = await self._client.facts()
            except SlurmReplyError as error:
                if self.facts is None:
                    raise
                log.warning("settings_not_read_again", problem=str(error))
            else:
                self._has_rights = self._has_rights or _has_rights(facts)
                self.facts = facts
            self._read_at_s = now_s
        if self.facts is not None and now_s >= self._grant_at_s:
            await self._let_slurm_write(wake, self.facts)

    async def _let_slurm_write(self, wake: WakePipe, facts: SlurmFacts) -> None:
        """Let SlurmUser's group write to the wake pipe and the folder of holds: job_submit.lua runs as that user.

        A failure is tried again later, and logged once while its problem is the same.
        """
        name = facts.settings.get("SlurmUser", "").split("(")[0]
        try:
            entry = await self._account(name)
            if entry.pw_uid not in {0, os.getuid()}:
                wake.grant(entry.pw_gid)
                self._holds.grant(entry.pw_gid)
        except (KeyError, OSError) as error:
            self._grant_at_s = self._clock.monotonic() + self._grants.next_s()
            if str(error) != self._grant_problem:
                self._grant_problem = str(error)
                log.warning("wake_pipe_closed_to_slurm", user=name, problem=self._grant_problem)
            return
        self._grant_at_s = math.inf


def _has_rights(facts: SlurmFacts) -> bool:
    """Return whether Slurm lets the controller change every user's jobs; False where Slurm does not name SlurmUser.

    Raises ConfigurationError when it does not: the controller has to be root or SlurmUser.
    """
    found = re.search(r"\((\d+)\)", facts.settings.get("SlurmUser", ""))
    if found is not None and os.getuid() not in {0, int(found[1])}:
        raise ConfigurationError(
            f"the controller runs as uid {os.getuid()}, whose changes Slurm refuses; run it as root or as SlurmUser "
            f"({facts.settings['SlurmUser']}), as systemd/headway-controller.service does"
        )
    return found is not None
