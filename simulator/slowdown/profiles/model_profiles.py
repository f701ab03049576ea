"""Profiles of trained models: the numbers that slowdown models read.

A job whose model has no profile, or that names no model, gets the median of all profiles, number by number: a simulation never
fails because a profile is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from policies.state.pair_ratios import Pair, key_of
from policies.state.ring_reduction import RL_TAPS_RING, RingTime
from simulator.errors import SlowdownError

__all__ = [
    "TIERS",
    "Curve",
    "MeasuredInterference",
    "ModelProfile",
    "ModelProfiles",
    "Pair",
    "RingTime",
    "Servers",
    "key_of",
    "median_profile",
]

TIERS = ("same socket", "same node", "same rack", "across racks")
"""The k = 4 placements of SCHED2, from concentrated to scattered."""
Curve = tuple[float, float, float, float]
"""Throughput at each tier relative to the first; non-increasing."""

Servers = tuple[float, float, float, float, float]
"""a to e of Optimus' speed model (links/parameter_server.py)."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profile of one trained model, on one GPU of the reference kind with the reference batch."""

    compute_s: float
    """Seconds of one step alone on one node: everything but communication between nodes."""
    bytes: float
    """Bytes of gradients reduced in one step; a ring of m nodes sends 2 (m-1)/m times as many through every node."""
    batch: int = 0
    """Examples of that step on one GPU; computing time is proportional to the batch. 0: it does not depend on the batch."""
    overlap: float = 0.0
    """Share of min(`hiding` x computing, communicating) that is hidden."""
    cpu: float = 6.0
    """Cores that a worker with one GPU keeps busy."""
    pcie: float = 0.1
    """Share of a PCIe link's bandwidth that a worker with one GPU uses alone."""
    locality: Curve | None = None
    """Throughput by tier; None: derived from computing and communication time."""
    scaling: tuple[float, float] | None = None
    """Contention and coherence of the universal scalability law; None: derived from computing and communication time."""
    servers: Servers | None = None
    """a to e of Optimus' speed model for parameter servers; None: derived from computing and communication time."""
    hiding: float = 1.0
    """Share of computing behind which communication can be hidden: that of the backward pass, if known."""
    speed_sensitivity: float = field(default=1.0, repr=False)
    """Share of a step that takes longer on a slower GPU (placement/node_speed.py), from 0 to 1. Not in `repr`, of which digests of
    training data are made."""

    def step_s(self, communicate_s: float, batch_size: float = -1) -> float:
        """Return the seconds of a step with so many examples per GPU (-1: the reference batch) and that communication time."""
        compute_s = self.compute_s * batch_size / self.batch if self.batch and batch_size > 0 else self.compute_s
        return compute_s + communicate_s - self.overlap * min(self.hiding * compute_s, communicate_s)


@dataclass(frozen=True)
class MeasuredInterference:
    """Coefficients of MARL's model of interference (section V): a job's slowdown by other jobs on its host."""

    alpha: tuple[float, float, float]
    """Scale, and exponents of the others' cores and of the job's own."""
    beta: tuple[float, float]
    """Coefficients of the others' PCIe use and of the job's own."""
    constant: float
    """Sum of the paper's two constants: measurements determine only their sum."""
    most_cores: float | None = None
    """Cores of others up to which the coefficients hold; more of them cost no more. None: no bound is known."""


@dataclass(frozen=True)
class ModelProfiles:
    """Profiles by model, and measurements of models together. Immutable: all copies of a simulation share it."""

    models: Mapping[str, ModelProfile]
    pairs: Mapping[Pair, float]
    """Throughput of the first beside the second, relative to that alone."""
    interference: MeasuredInterference
    ring: RingTime = RL_TAPS_RING
    default: str = ""
    """Model whose profile unknown models get; '': the median of all."""
    _known: dict[str, ModelProfile] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._known.update((key_of(name), profile) for name, profile in self.models.items())
        if self.default and key_of(self.default) not in self._known:
            raise SlowdownError(
                f"no profile is called {self.default!r}", mend=f"take one of {', '.join(sorted(self.models))}"
            )

    def of(self, model: str) -> ModelProfile:
        """Return the profile of that model, or that of unknown models."""
        return self._known.get(key_of(model)) or self.unknown

    @cached_property
    def unknown(self) -> ModelProfile:
        """The profile of models that have none."""
        if self.default:
            return self._known[key_of(self.default)]
        return median_profile(self.models.values())

    def with_models(self, models: Mapping[str, ModelProfile]) -> ModelProfiles:
        """Return these profiles with those models added or replaced."""
        return replace(self, models={**self.models, **models})


def median_profile(profiles: Iterable[ModelProfile]) -> ModelProfile:
    """Return the median of each number; of an optional number, over the profiles that have it."""
    rows = list(profiles)
    if not rows:
        raise SlowdownError("there are no profiles", mend="give at least one model")
    locality = _medians(row.locality for row in rows)
    scaling = _medians(row.scaling for row in rows)
    servers = _medians(row.servers for row in rows)
    return ModelProfile(
        compute_s=median(row.compute_s for row in rows),
        bytes=median(row.bytes for row in rows),
        overlap=median(row.overlap for row in rows),
        cpu=median(row.cpu for row in rows),
        pcie=median(row.pcie for row in rows),
        locality=(locality[0], locality[1], locality[2], locality[3]) if locality else None,
        scaling=(scaling[0], scaling[1]) if scaling else None,
        servers=(servers[0], servers[1], servers[2], servers[3], servers[4]) if servers else None,
        speed_sensitivity=median(row.speed_sensitivity for row in rows),
    )


def _medians(lists: Iterable[Sequence[float] | None]) -> list[float]:
    known = [numbers for numbers in lists if numbers is not None]
    return [median(column) for column in zip(*known, strict=True)]
