"""The workloads and clusters that headway-rl is trained on where the user gives neither traces nor a cluster.

`usual`: demands 1 to 32 around load 0.9, on two racks whose uplinks are oversubscribed 2:1 and on one rack; and, on one rack,
workloads that differ from those in all respects.

`wide`: these, and five with what those lack: durations with heavy tails, loads from 0.5 to 1.5, 3x8 to 100x8, and durations that
are noisy or known only from earlier jobs of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.learned.training.systems import TrainingSetup, WorkloadSpec

USUAL, WIDE = "usual", "wide"
SETUPS = (USUAL, WIDE)
_SKEWED = (1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32)
"""Demands of which nearly half are one GPU, as in logs of clusters."""
_HEAVY = 2.0
"""Deviation of the logarithm of durations with heavy tails: one job in twenty lasts for 27 median durations or longer."""


def setups_of(kind: str, jobs: int) -> list[TrainingSetup]:
    """Return the setups of that kind, for traces of so many jobs. The first is that of every kind."""
    return [narrow(jobs), narrow(jobs, racks=1), others(jobs), *(wide(jobs) if kind == WIDE else ())]


def narrow(jobs: int, racks: int = 2) -> TrainingSetup:
    """Return the setup with demands 1 to 32, Poisson arrivals, both mixes, and loads around 0.9."""
    kinds = [{"arrivals": "poisson", "load": load, "demands": tuple(range(1, 33))} for load in (0.9, 0.7, 1.1)]
    return _setup(_racks(racks, nodes=4), _in_both_mixes(kinds, jobs))


def others(jobs: int) -> TrainingSetup:
    """Return the setup with other workloads: jobs that fill nodes exactly, that arrive at once, or whose durations differ much."""
    powers = (1, 2, 4, 8, 16)
    kinds: list[dict[str, object]] = [
        {"arrivals": "batch", "demands": powers[1:4]},
        {"arrivals": "batch", "demands": powers, "duration_spread": 1.0},
        {"arrivals": "poisson", "load": 0.9, "demands": powers},
        {"arrivals": "poisson", "load": 1.1, "demands": powers, "duration_spread": 1.0},
        {"arrivals": "poisson", "load": 0.9, "demands": tuple(range(1, 33)), "duration_spread": 1.0},
    ]
    return _setup(_racks(1, nodes=4), _in_both_mixes(kinds, jobs))


def wide(jobs: int) -> list[TrainingSetup]:
    """Return the setups that only `wide` has."""
    small = [_poisson(load, (1, 1, 2, 4, 8, 16), _HEAVY) for load in (0.5, 0.9, 1.5)]
    skewed = [_poisson(load, _SKEWED, _HEAVY) for load in (0.7, 0.9, 1.2)]
    large = [_poisson(load, (8, 16, 32, 64, 128, 256), 1.0) for load in (0.9, 1.1)]
    medium = _racks(3, nodes=2)
    return [
        _setup(_racks(1, nodes=3), _in_both_mixes(small, jobs), few=True),
        _setup(medium, _in_both_mixes(skewed, jobs), few=True),
        _setup(medium, _in_both_mixes(skewed, jobs), few=True, estimates="noisy:1"),
        _setup(medium, _in_both_mixes(skewed, jobs), few=True, estimates="history"),
        _setup(_racks(10, nodes=10), _in_both_mixes(large, jobs), few=True),
    ]


def _poisson(load: float, demands: tuple[int, ...], spread: float) -> dict[str, object]:
    return {"arrivals": "poisson", "load": load, "demands": demands, "duration_spread": spread}


def _in_both_mixes(kinds: Sequence[Mapping[str, object]], jobs: int) -> list[dict[str, object]]:
    return [{"jobs": jobs, "mix": mix, **kind} for kind in kinds for mix in ("normal", "heavy")]


def _racks(racks: int, nodes: int) -> list[dict[str, object]]:
    return [{"count": nodes, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]


def _setup(
    nodes: Sequence[Mapping[str, object]],
    workloads: Sequence[Mapping[str, object]],
    *,
    few: bool = False,
    estimates: str = "true",
) -> TrainingSetup:
    """`few`: one validation seed instead of two."""
    return TrainingSetup(
        workloads=tuple(WorkloadSpec("contention-rl", workload) for workload in workloads),
        cluster={"nodes": nodes, "network": {"kind": "racks", "nic_gbs": 12.5, "uplink_gbs": 25.0}},
        slowdown=("link-sharing",),
        estimates=estimates,
        validation_seeds=range(200, 201 if few else 202),
    )
