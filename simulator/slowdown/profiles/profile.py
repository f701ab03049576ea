"""What is known of how models train: the numbers that slowdown models read, by the name of what is trained.

A job whose model has no profile, or that names none, is taken for the median of those that have one (number by number): a
simulation never fails for want of a profile.
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
    "Interference",
    "Pair",
    "Profile",
    "Profiles",
    "RingTime",
    "Servers",
    "key_of",
    "median_profile",
]

TIERS = ("same socket", "same node", "same rack", "across racks")
"""The k = 4 placements of SCHED2, from concentrated to scattered."""
Curve = tuple[float, float, float, float]
"""Throughput at each tier relative to the first; it never rises."""

Servers = tuple[float, float, float, float, float]
"""a to e of Optimus' speed model (network/parameter_server.py)."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How one model trains, on one GPU of the usual kind and batch."""

    compute_s: float
    """Of one step, alone on one node: all that does not wait for the network between nodes."""
    bytes: float
    """Gradients (or what else is reduced) in one step; a ring of m nodes sends 2 (m-1)/m times as many through every node."""
    batch: int = 0
    """Examples of that step on one GPU: with another batch size computing takes longer in proportion; 0: it does not matter."""
    overlap: float = 0.0
    """Share of the shorter of what `hiding` says and communicating that is hidden behind the other."""
    cpu: float = 6.0
    """Cores that a worker of one GPU keeps busy."""
    pcie: float = 0.1
    """Share of a PCIe link's bandwidth that a worker of one GPU uses when alone."""
    locality: Curve | None = None
    """Throughput by tier; None: by computing and communicating time."""
    scaling: tuple[float, float] | None = None
    """Contention and coherence of the universal scalability law; None: by computing and communicating time."""
    servers: Servers | None = None
    """a to e of Optimus' speed model for parameter servers; None: by computing and communicating time."""
    hiding: float = 1.0
    """Share of computing behind which communicating can hide at all: that of the backward pass, where it is known."""

    def step_s(self, communicate_s: float, batch_size: float = -1) -> float:
        """Seconds of a step of so many examples a GPU (-1: the usual number) that communicates for so long."""
        compute_s = self.compute_s * batch_size / self.batch if self.batch and batch_size > 0 else self.compute_s
        return compute_s + communicate_s - self.overlap * min(self.hiding * compute_s, communicate_s)


@dataclass(frozen=True)
class Interference:
    """Coefficients of MARL's model of interference (section V): a job's slowdown by those with whom it shares a host."""

    alpha: tuple[float, float, float]
    """Scale, and exponents by the others' cores and by the job's own."""
    beta: tuple[float, float]
    """By the others' PCIe use and by the job's own."""
    constant: float
    """Both constants of the paper, which only their sum can tell from measurements."""


@dataclass(frozen=True)
class Profiles:
    """Profiles by model, and what was measured of models together. Immutable: all copies of a simulation share it."""

    models: Mapping[str, Profile]
    pairs: Mapping[Pair, float]
    """Throughput of the first beside the second, as a share of what it has alone."""
    interference: Interference
    ring: RingTime = RL_TAPS_RING
    default: str = ""
    """The model for which unknown ones are taken; '': their median."""
    _known: dict[str, Profile] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._known.update((key_of(name), profile) for name, profile in self.models.items())
        if self.default and key_of(self.default) not in self._known:
            raise SlowdownError(
                f"no profile is called {self.default!r}", mend=f"take one of {', '.join(sorted(self.models))}"
            )

    def of(self, model: str) -> Profile:
        """The profile of that model, or what stands for those that have none."""
        return self._known.get(key_of(model)) or self.unknown

    @cached_property
    def unknown(self) -> Profile:
        """What stands for models without a profile."""
        if self.default:
            return self._known[key_of(self.default)]
        return median_profile(self.models.values())

    def with_models(self, models: Mapping[str, Profile]) -> Profiles:
        """These, and those models besides or instead."""
        return replace(self, models={**self.models, **models})


def median_profile(profiles: Iterable[Profile]) -> Profile:
    """The median of each number; of what some leave open, the median of those that say it."""
    rows = list(profiles)
    if not rows:
        raise SlowdownError("there are no profiles", mend="give at least one model")
    locality = _medians(row.locality for row in rows)
    scaling = _medians(row.scaling for row in rows)
    servers = _medians(row.servers for row in rows)
    return Profile(
        compute_s=median(row.compute_s for row in rows),
        bytes=median(row.bytes for row in rows),
        overlap=median(row.overlap for row in rows),
        cpu=median(row.cpu for row in rows),
        pcie=median(row.pcie for row in rows),
        locality=(locality[0], locality[1], locality[2], locality[3]) if locality else None,
        scaling=(scaling[0], scaling[1]) if scaling else None,
        servers=(servers[0], servers[1], servers[2], servers[3], servers[4]) if servers else None,
    )


def _medians(lists: Iterable[Sequence[float] | None]) -> list[float]:
    known = [numbers for numbers in lists if numbers is not None]
    return [median(column) for column in zip(*known, strict=True)]
