"""The cluster of racks with narrow uplinks, and the arrivals of jobs on it, the same for every policy.

A job asks for a number of GPUs (`--gpus=N`), and the policy chooses the nodes. Computing times and bytes of models are those of
`simulator.slowdown.profiles.papers`, from publications.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.slowdown.profiles.papers import paper_profiles

RACKS, NODES_OF_RACK, GPUS = 4, 2, 4
"""Racks, nodes in each, and GPUs of a node."""
NIC_GBYTE_S = 1.25
"""Speed of a NIC: 10 Gb/s, as agents read it from the interfaces of the mini-cluster."""
UPLINK_GBYTE_S = NODES_OF_RACK * NIC_GBYTE_S / 2
"""Speed of a rack's uplink, half that of the NICs below it (2:1)."""
MODELS = ("vgg16", "fsdp", "alexnet")
"""Models of jobs, each equally often. Alone on two nodes they communicate for 83, 75 and 83 % of a step."""
SIZES = (5, 7)
"""GPUs of a job, each equally often: more than a node has, and not divisible in equal parts. The policy chooses the nodes, and
Slurm divides the job's GPUs among them."""
LENGTH_S = (60.0, 120.0)
"""Shortest and longest time of a job alone, log-uniform between."""
GAP_S = 4.0
"""Mean time between two submissions, exponential."""
JOBS = 14
"""Jobs in a repeat."""
SEEDS = (1, 2, 3)
"""Seeds of the repeats of the series that the documentation reports."""
POLICIES = ("srtf", "las", "contention-greedy", "headway-rl:values=start", "headway-rl")
"""Policies of that series."""
_LIMIT = 10.0
"""Ratio of a job's time limit to its time alone, so that no job is killed which others slow down."""


@dataclass(frozen=True, slots=True)
class Step:
    """One training step: seconds of computing, and bytes of gradients that a ring of nodes reduces."""

    compute_s: float
    bytes: float

    def seconds(self, nodes: int, gbyte_s: float = NIC_GBYTE_S) -> float:
        """Return the seconds of a step on so many nodes, if the narrowest link of the ring has that speed."""
        return self.compute_s + 2 * (nodes - 1) / nodes * self.bytes / (gbyte_s * 1e9)


@dataclass(frozen=True, slots=True)
class Job:
    """One job. Policies know its time limit, and the profile of its model, which is its job name."""

    name: str
    model: str
    gpus: int
    alone_s: float
    """Seconds that it trains alone on the fewest nodes of one rack."""
    submit_s: float
    """Seconds after the run's start."""

    @property
    def limit_min(self) -> int:
        """The time limit, whole minutes."""
        return math.ceil(_LIMIT * self.alone_s / 60)

    @property
    def best_step_s(self) -> float:
        """Seconds of a step alone on the fewest nodes of one rack."""
        return steps()[self.model].seconds(math.ceil(self.gpus / GPUS))


def arrivals(seed: int, jobs: int = JOBS) -> tuple[Job, ...]:
    """Return the jobs of a repeat. The same seed always gives the same jobs."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    made, submit_s = [], 0.0
    shortest, longest = map(math.log, LENGTH_S)
    for number in range(1, jobs + 1):
        model, gpus = draw.choice(MODELS), draw.choice(SIZES)
        alone_s = round(math.exp(draw.uniform(shortest, longest)), 1)
        made.append(Job(f"job{number:02}", model, gpus, alone_s, round(submit_s, 2)))
        submit_s += draw.expovariate(1 / GAP_S)
    return tuple(made)


def steps() -> Mapping[str, Step]:
    """Return the step of each model."""
    profiles = paper_profiles().models
    return {model: Step(profiles[model].compute_s, profiles[model].bytes) for model in MODELS}


def rack_of(node: int) -> int:
    """Return the rack of a node, both by number from 0."""
    return node // NODES_OF_RACK
