"""Result of one cycle, for the controller's status, its metrics and the contention threshold."""

from __future__ import annotations

from dataclasses import dataclass

from controller.cycle.changes import JobChanges
from controller.cycle.decision.decider import Decided
from controller.observe.observer import Observation
from controller.observe.role import SETTLING, Role
from controller.slurm.model.job import Phase
from controller.state.journal import RunRecord

_PASSING = frozenset({Phase.CONFIGURING, Phase.COMPLETING})


@dataclass(frozen=True, slots=True)
class CycleResult:
    """Snapshot, decision and changes of one cycle."""

    observation: Observation
    changes: JobChanges
    """Changes since the last good cycle; cycles that broke off in between have reported none."""
    runs: tuple[RunRecord, ...]
    """Jobs that ended since then."""
    decided: Decided | None
    in_transit: bool
    """True if something is about to change (a job starts or ends): read Slurm again soon."""
    plan_s: float = 0.0
    """Time from the snapshot to the checked plan, seconds, with the calls to Slurm before the decision."""


def is_in_transit(observation: Observation, decided: Decided | None) -> bool:
    """Return whether jobs are about to start or to end, so that the next snapshot will differ."""
    if decided is not None and decided.plan.starts:
        return True
    starting, running = Role.STARTING, Role.RUNNING
    for key, found in observation.standings.items():
        role = found.role
        if role is starting or found is SETTLING or (role is running and observation.jobs[key].phase in _PASSING):
            return True
    return False
