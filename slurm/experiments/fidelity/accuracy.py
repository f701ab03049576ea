"""Errors of the predictions against the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from slurm.experiments.fidelity.predict import Predicted
from slurm.experiments.fidelity.records import Replay

GOAL_MEAN = 0.04
"""Mean over policies of the error of the average JCT."""
GOAL_WORST = 0.08
"""Error of the worst policy."""


@dataclass(frozen=True, slots=True)
class JobError:
    """One job of one replay. Times in seconds."""

    name: str
    measured_wait_s: float
    predicted_wait_s: float
    measured_jct_s: float
    predicted_jct_s: float
    same_nodes: bool
    """It ran on the nodes that the simulator predicted."""

    @property
    def error(self) -> float:
        """Relative error of the predicted JCT; below 0 = too short."""
        return self.predicted_jct_s / self.measured_jct_s - 1


@dataclass(frozen=True, slots=True)
class PolicyError:
    """One replay."""

    policy: str
    jobs: tuple[JobError, ...]
    cpu_busy: float

    @property
    def measured_s(self) -> float:
        """Average JCT."""
        return fmean(job.measured_jct_s for job in self.jobs)

    @property
    def predicted_s(self) -> float:
        """Average JCT."""
        return fmean(job.predicted_jct_s for job in self.jobs)

    @property
    def error(self) -> float:
        """Relative error of the average JCT, signed."""
        return self.predicted_s / self.measured_s - 1

    @property
    def mean_absolute(self) -> float:
        """Mean over jobs of |error|."""
        return fmean(abs(job.error) for job in self.jobs)

    @property
    def worst(self) -> JobError:
        """The job with the largest error."""
        return max(self.jobs, key=lambda job: abs(job.error))

    @property
    def elsewhere(self) -> int:
        """Jobs that ran on other nodes than predicted."""
        return sum(not job.same_nodes for job in self.jobs)


def compare(replay: Replay, predicted: Sequence[Predicted]) -> PolicyError:
    """Return the errors of the prediction of a replay, job by job."""
    jobs = tuple(
        JobError(
            name=guess.name,
            measured_wait_s=run.start_s - run.submit_s,
            predicted_wait_s=guess.wait_s,
            measured_jct_s=run.jct_s,
            predicted_jct_s=guess.jct_s,
            same_nodes=run.nodes == tuple(f"n{node + 1}" for node in sorted(guess.nodes)),
        )
        for run, guess in zip(replay.runs, predicted, strict=True)
    )
    return PolicyError(replay.policy, jobs, replay.cpu_busy)


def mean_error(errors: Sequence[PolicyError]) -> float:
    """Return the mean over policies of |error of the average JCT|."""
    return fmean(abs(each.error) for each in errors)


def worst_error(errors: Sequence[PolicyError]) -> float:
    """Return the largest of them."""
    return max(abs(each.error) for each in errors)


def met(errors: Sequence[PolicyError]) -> bool:
    """Return whether both goals are met."""
    return mean_error(errors) <= GOAL_MEAN and worst_error(errors) <= GOAL_WORST
