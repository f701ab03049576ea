"""Health of the controller itself, updated with every cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    plan_s: float = 0.0
    """Time from the last snapshot to its plan, seconds."""
    cycles: int = 0
    failures: int = 0
    """Number of cycles that failed, of stops of jobs between cycles that did, and of listeners that did."""
    last_error: str = ""
    slurm_away: int = 0
    """Number of consecutive readings that slurmctld did not answer."""
