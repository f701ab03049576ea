"""The reason why a job waits, as one of few phrases: for the queue, and for the notes of `headway report`."""

from __future__ import annotations

from controller.observe.role import Obstacle, Role, Standing

FOR_GPUS = "for GPUs, in the policy's order"
_REFUSED = "for a limit: Slurm did not start it where it was placed"
_BEGIN = "for its begin time"
_SLURM = "for Slurm to place it"
_START = "for Slurm to start it"
OTHER = "for other reasons"
"""Reason where no other is known."""
_BY_ROLE = {
    Role.WAITING: FOR_GPUS,
    Role.STARTING: _START,
    Role.ADOPT: _SLURM,
    Role.YIELDED: _SLURM,
    Role.STRAY: _SLURM,
}
_BY_OBSTACLE = {Obstacle.REFUSAL: _REFUSED, Obstacle.BEGIN_TIME: _BEGIN}
_MOST_REASON = 80


def reason_of(found: Standing) -> str:
    """Return what a job waits for, as the end of "it waited 5 min"; empty if it does not wait."""
    if found.role is not Role.INELIGIBLE:
        return _BY_ROLE.get(found.role, "")
    if found.obstacle in _BY_OBSTACLE:
        return _BY_OBSTACLE[found.obstacle]
    return found.why.partition(";")[0].partition(" (")[0].removeprefix("waits ")[:_MOST_REASON] or OTHER
