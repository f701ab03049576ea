"""Known profiles, jobs that share nodes or links, and the factors that a model gives them."""

from __future__ import annotations

from dataclasses import replace

from simulator.cluster.topology import rack_tree
from simulator.slowdown.api import Resident, SlowdownModel
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles

KNOWN = {
    "even": ModelProfile(compute_s=1.0, bytes=12.5e9),
    "hidden": ModelProfile(compute_s=1.0, bytes=12.5e9, overlap=1.0),
    "tiered": ModelProfile(compute_s=1.0, bytes=1e9, locality=(1.0, 0.8, 0.5, 0.25)),
    "batched": ModelProfile(compute_s=1.0, bytes=12.5e9, batch=100),
}
PROFILES = replace(paper_profiles(), models=KNOWN, default="even")
RACKS = rack_tree([8] * 6, [2] * 6, [0, 0, 0, 1, 1, 1])


def at(job: int, model: str, where: dict[int, int], asked: int = 0, batch_size: int = -1) -> Resident:
    return Resident(job, model, batch_size, asked or sum(where.values()), tuple(where), tuple(where.values()))


def factors_of(model: SlowdownModel, *residents: Resident) -> list[float]:
    for resident in residents:
        model.enter(resident)
    return [model.factor(resident.job) for resident in residents]
