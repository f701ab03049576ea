"""The settings of a run, beside trace, cluster and policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from simulator.errors import SettingError
from simulator.traces.trace import MAX_TIME_S

KINDS = ("true", "limit", "noisy", "history")


@dataclass(frozen=True, slots=True)
class Estimates:
    """The source of the durations that policies see."""

    kind: str = "true"
    """true, limit (the user's time limit), noisy (true times a random factor), or history (mean of the user's past jobs)."""
    sigma: float = 0.0
    """For `noisy`: the factor is log-normal with median 1, and its logarithm has this standard deviation."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not 0 <= self.sigma < 10:
            raise SettingError(
                f"estimates are {self.kind!r} with sigma {self.sigma}; give one of {', '.join(KINDS)}, and a sigma from 0 to 10"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse true, limit, noisy:SIGMA or history. Raises SettingError."""
        kind, colon, rest = text.partition(":")
        if kind == "noisy":
            try:
                sigma = float(rest)
            except ValueError:
                sigma = -1.0
            if 0 <= sigma < 10:
                return cls(kind, sigma)
        elif kind in {"true", "limit", "history"} and not colon:
            return cls(kind)
        raise SettingError(f"--estimates {text!r}: write true, limit, history, or noisy:SIGMA with SIGMA from 0 to 10")


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of a node: it goes down (its jobs are killed), is drained (its jobs continue), or comes back up."""

    time_s: float
    node: int
    change: str
    """down, drain or up."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run. Runs with equal settings, trace, cluster and policy are equal to the last digit."""

    seed: int = 0
    """Seed of all random draws: noisy estimates, and which jobs are not preemptible."""
    estimates: Estimates = field(default_factory=Estimates)
    preempt_cost_s: float | None = None
    """Overhead that a stop adds to the next start, seconds; None: by the job's model, see `simulator.engine.stop_costs`."""
    preemptible_share: float = 1.0
    """Share of the trace's preemptible jobs that may in fact be stopped."""
    checkpoint_interval_s: float = float("inf")
    """Seconds of work between a running job's checkpoints, against node failures; infinite: it is saved at stops only."""
    changes: tuple[NodeChange, ...] = ()
    record: bool = False
    """Record what reports draw: every run of every job, and the cluster after each decision."""

    def __post_init__(self) -> None:
        if self.preempt_cost_s is not None and not 0 <= self.preempt_cost_s <= MAX_TIME_S:
            raise SettingError(
                f"a preempt cost of {self.preempt_cost_s} s is not possible; give 0 to {MAX_TIME_S:g} seconds"
            )
        if not 0 <= self.preemptible_share <= 1:
            raise SettingError(f"a preemptible share of {self.preemptible_share} is not possible; give 0 to 1")
        if not self.checkpoint_interval_s >= 1e-9:
            raise SettingError(
                f"a checkpoint interval of {self.checkpoint_interval_s} s is not possible; give at least 1e-9"
            )
