"""What a run assumes beside trace, cluster and policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from simulator.errors import SettingError
from simulator.traces.trace import MAX_TIME_S

KINDS = ("true", "limit", "noisy", "history")


@dataclass(frozen=True, slots=True)
class Estimates:
    """What policies are told of durations."""

    kind: str = "true"
    """true, limit (what the user asked for), noisy (true times a random factor), history (mean of the user's past jobs)."""
    sigma: float = 0.0
    """Of `noisy`: the factor is log-normal with median 1 and this standard deviation of its logarithm."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not 0 <= self.sigma < 10:
            raise SettingError(f"{self}: the kind is one of {', '.join(KINDS)}, sigma from 0 to 10")

    @classmethod
    def parse(cls, text: str) -> Self:
        """From true, limit, noisy:SIGMA or history. Raises SettingError."""
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
    """At that time a node goes down (its jobs are killed), is drained (its jobs run on), or comes back up."""

    time_s: float
    node: int
    change: str
    """down, drain or up."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a run assumes; with equal settings, trace, cluster and policy a run is the same to the last digit."""

    seed: int = 0
    """Of everything that is drawn: noisy estimates, which jobs are not preemptible."""
    estimates: Estimates = field(default_factory=Estimates)
    preempt_cost_s: float | None = None
    """What each stop costs at the next start, seconds; None: by the size of the job's model, see `simulator.engine.stop_costs`."""
    preemptible_share: float = 1.0
    """Of the jobs that the trace does not call unpreemptible, so many may be stopped."""
    checkpoint_interval_s: float = float("inf")
    """A running job is saved every so many seconds of its work, against failures of its nodes; infinite: at stops only."""
    changes: tuple[NodeChange, ...] = ()
    record: bool = False
    """Keep what reports draw: every run of every job, and the cluster after each decision."""

    def __post_init__(self) -> None:
        if self.preempt_cost_s is not None and not 0 <= self.preempt_cost_s <= MAX_TIME_S:
            raise SettingError(f"a preempt cost of {self.preempt_cost_s} s is not possible; give 0 or more seconds")
        if not 0 <= self.preemptible_share <= 1:
            raise SettingError(f"a preemptible share of {self.preemptible_share} is not possible; give 0 to 1")
        if not self.checkpoint_interval_s >= 1e-9:
            raise SettingError(
                f"a checkpoint interval of {self.checkpoint_interval_s} s is not possible; give more than 0"
            )
