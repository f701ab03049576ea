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
_BY_OBSTACLE = {
    Obstacle.REFUSAL: _REFUSED,
    Obstacle.BEGIN_TIME: _BEGIN,
    Obstacle.DEPENDENCY: "for other jobs",
    Obstacle.USER_HOLD: "held by its user",
    Obstacle.OPERATOR_HOLD: "held by an operator",
    Obstacle.OTHER_HOLD: "held by Slurm",
    Obstacle.ARRAY_THROTTLE: "for other tasks of its array",
    Obstacle.SETTLING: "for Slurm, after a requeue",
    Obstacle.OTHER: _SLURM,
}

REASONS = tuple(dict.fromkeys((*_BY_ROLE.values(), *_BY_OBSTACLE.values())))
"""Every phrase that `reason_of` returns for jobs that wait."""


def reason_of(found: Standing) -> str:
    """Return what a job waits for, as the end of "it waited 5 min"; empty if it does not wait.

    One phrase for each role and obstacle, so that jobs can be counted and chosen by it.
    """
    if found.role is not Role.INELIGIBLE:
        return _BY_ROLE.get(found.role, "")
    return _BY_OBSTACLE[found.obstacle]
