"""Slurm's version and settings, read at the start and every minute; the controller's own rights are checked against them."""

from __future__ import annotations

import math
import os
import pwd
import re

import structlog

from controller.base.clock import Clock
from controller.base.errors import ConfigurationError, SlurmReplyError
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.client import SlurmClient, SlurmFacts
from controller.slurm.user_holds import HoldFolder

log = structlog.get_logger(__name__)

_EVERY_S = 60.0
"""Interval between two readings, seconds: slurmctld answers `scontrol show config` at once, and its answer seldom changes."""


class SlurmSettings:
    """Keeps Slurm's version and settings. Invariant: they are at most a minute old while Slurm answers."""

    def __init__(self, client: SlurmClient, clock: Clock, holds: HoldFolder) -> None:
        self._client = client
        self._clock = clock
        self._holds = holds
        self._read_at_s = -math.inf
        self.facts: SlurmFacts | None = None
        """None before the first answer."""

    def expire(self) -> None:
        """Read the settings again at the next opportunity."""
        self._read_at_s = -math.inf

    async def read(self, wake: WakePipe) -> None:
        """Read the settings, if they are due: `scontrol reconfigure` may have changed them (PrivateData).

        Raises ConfigurationError when Slurm would refuse the controller's changes, and SlurmError at the first reading.
        """
        now_s = self._clock.monotonic()
        if self.facts is None:
            facts = await self._client.facts()
            _require_rights(facts)
            _let_slurm_write(wake, self._holds, facts)
            self.facts = facts
        elif now_s - self._read_at_s >= _EVERY_S:
            try:
                self.facts = await self._client.facts()
            except SlurmReplyError as error:
                log.warning("settings_not_read_again", problem=str(error))
        else:
            return
        self._read_at_s = now_s


def _require_rights(facts: SlurmFacts) -> None:
    """Check that Slurm lets the controller change every user's jobs. Raises ConfigurationError: it needs root or SlurmUser."""
    found = re.search(r"\((\d+)\)", facts.settings.get("SlurmUser", ""))
    if found is not None and os.getuid() not in {0, int(found[1])}:
        raise ConfigurationError(
            f"the controller runs as uid {os.getuid()}, whose changes Slurm refuses; run it as root or as SlurmUser "
            f"({facts.settings['SlurmUser']}), as systemd/headway-controller.service does"
        )


def _let_slurm_write(wake: WakePipe, holds: HoldFolder, facts: SlurmFacts) -> None:
    """Let SlurmUser's group write to the wake pipe and the folder of holds: job_submit.lua runs as that user."""
    name = facts.settings.get("SlurmUser", "").split("(")[0]
    try:
        entry = pwd.getpwnam(name)
        if entry.pw_uid not in {0, os.getuid()}:
            wake.grant(entry.pw_gid)
            holds.grant(entry.pw_gid)
    except (KeyError, OSError) as error:
        log.warning("wake_pipe_closed_to_slurm", user=name, problem=str(error))
