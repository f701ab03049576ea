"""Health of the controller itself, updated with every cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.cycle.view.result import CycleResult

CycleListener = Callable[[CycleResult], None]
"""Called in the event loop with the result of every successful cycle: it must not wait, and must not raise."""


@dataclass(slots=True)
class Health:
    """Times and errors of the cycles, for `headway status`, the lease and metrics."""

    started_s: float
    last_good_s: float = 0.0
    """End of the last successful cycle, or of the last step that Slurm carried out, on the wall clock, for users and
    metrics; 0 = none yet."""
    good_at_s: float | None = None
    """The same on the monotonic clock, by which the lease is renewed; None = none yet."""
    begun_at_s: float = 0.0
    """Start of the controller on the monotonic clock."""
    last_cycle_s: float | None = None
    """End of the last cycle, successful or not, or of such a step, on the monotonic clock."""
    snapshot_time_s: float = 0.0
    read_s: float = 0.0
    """Time that the last reading of Slurm took, seconds."""
    last_reads_s: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    """The same of the last three readings."""
    plan_s: float = 0.0
    """Time from the last snapshot to its plan, seconds."""
    cycles: int = 0
    failures: int = 0
    """Number of cycles that failed, of stops of jobs between cycles that did, and of listeners that did."""
    last_error: str = ""
    slurm_away: int = 0
    """Number of consecutive readings that slurmctld did not answer."""

    @property
    def usual_read_s(self) -> float:
        """Time that a reading of Slurm takes when nothing disturbs it, seconds: the shortest of the last three."""
        return min(self.last_reads_s, default=0.0)

    def note_reading(self, read_s: float) -> None:
        """Note how long a reading of Slurm took, seconds."""
        self.read_s = read_s
        self.last_reads_s.append(read_s)
