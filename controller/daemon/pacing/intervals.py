"""Pauses between readings of Slurm, and the maximum age of the last good cycle."""

from __future__ import annotations

from collections.abc import Callable

from controller.base.config import ControllerSettings
from controller.cycle.view.health import Health
from policies.serving.runtime.tasks.backoff import Backoff

_QUIET_SHARE = 75.0
"""Minimum pause while nothing happens, as a multiple of the time to read Slurm. With ten thousand jobs in the queue, scontrol and
the cycle then take about one percent of a core, and slurmctld's answers another one."""
_BUSY_SHARE = 2.0
_LEISURE = 3.0
"""Number of intervals between two readings while no job waits. A new job has to wait for the end of an interval, so readings
without a waiting job are few."""
_LONGEST_PAUSE_S = 60.0
MAX_BACKOFF_S = 30.0
"""Longest pause while slurmctld does not answer."""


class Intervals:
    """Intervals by the settings and by the time to read Slurm. All are in seconds."""

    def __init__(self, settings: Callable[[], ControllerSettings], health: Health) -> None:
        self._settings = settings
        self._health = health

    @property
    def quiet_s(self) -> float:
        """Pause while nothing happens; it is longer where it takes longer to read Slurm.

        One slow reading among quick ones does not count: jobs whose begin time comes would wait up to a minute for the next.
        """
        longest_s = min(self._health.usual_read_s * _QUIET_SHARE, _LONGEST_PAUSE_S)
        return max(self._settings().poll_interval_s, longest_s)

    @property
    def least_s(self) -> float:
        """Shortest time between two readings: slurmctld never sees more than one bulk query in it.

        A reading that took longer than the time limit of a command does not count: this process or its machine was suspended.
        """
        read_s = min(self._health.read_s, self._settings().slurm_timeout_s)
        return max(self._settings().min_poll_interval_s, read_s * _BUSY_SHARE)

    @property
    def leisure_s(self) -> float:
        """Time between two readings while no job waits."""
        return max(self.least_s, min(_LEISURE * self.least_s, _LONGEST_PAUSE_S))

    @property
    def away_s(self) -> float:
        """Pause after a reading that slurmctld did not answer; it doubles each time, up to half a minute."""
        return Backoff(self._settings().min_poll_interval_s, MAX_BACKOFF_S).pause_s(self._health.slurm_away)

    @property
    def patience_s(self) -> float:
        """Maximum age of the last good cycle at which the lease is renewed; it is longer than the longest pause between two
        cycles."""
        settings = self._settings()
        return max(self.quiet_s, self.leisure_s) + max(settings.stale_after_s / 2, 2 * settings.heartbeat_interval_s)
