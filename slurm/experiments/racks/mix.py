"""The arrivals of jobs on a cluster of racks, the same for every policy, and how long each job would train.

No job trains: each sleeps for the time that its training would take on its nodes if it were alone there. A step computes, and then
reduces its gradients over a ring of its nodes, at the speed of the NICs within a rack, and of a rack's uplink across racks. Jobs do
not slow each other down. Models are those of MARL's table I, with the computing times and bytes that MARL's agents know.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from policies.learned.marl.serving.job_columns import MODELS, STEPS

RACKS, NODES_OF_RACK, GPUS = 3, 4, 4
"""Racks, nodes in each, and GPUs of a node."""
NIC_GBYTE_S, UPLINK_GBYTE_S = 12.5, 1.25
"""Speed of a node's NIC, which policies assume where none was measured, and of a rack's uplink, which Slurm's topology has."""
SIZES = (1, 2, 3, 4, 8)
"""GPUs of a job: up to four workers as in the paper, and gangs of several nodes."""


@dataclass(frozen=True, slots=True)
class RackJob:
    """One job. Slurm does not know its model; its time limit is the only duration that policies know."""

    name: str
    model: str
    gpus: int
    steps: int
    submit_s: float
    """Seconds after the run's start."""
    limit_min: int

    @property
    def step(self) -> tuple[float, float]:
        """Seconds of computing and bytes of gradients of a step."""
        return STEPS[MODELS.index(self.model)]

    def seconds(self, nodes: int, racks: int) -> float:
        """Return how long the job trains on so many nodes in so many racks."""
        compute_s, gradients = self.step
        speed = (UPLINK_GBYTE_S if racks > 1 else NIC_GBYTE_S) * 1e9
        return self.steps * (compute_s + 2 * (nodes - 1) / nodes * gradients / speed)


def arrivals(jobs: int, seed: int, length_s: tuple[float, float], load: float) -> tuple[RackJob, ...]:
    """Return a number of jobs that ask for `load` times the GPUs of the cluster. The same seed always gives the same jobs.

    Their durations on one node are log-uniform between two lengths, in seconds, and gaps are exponential.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload
    shortest_s, longest_s = length_s
    mean_s = (longest_s - shortest_s) / math.log(longest_s / shortest_s) if longest_s > shortest_s else longest_s
    rate = load * RACKS * NODES_OF_RACK * GPUS / (mean_s * sum(SIZES) / len(SIZES))
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        model, gpus = draw.choice(MODELS), draw.choice(SIZES)
        alone_s = math.exp(draw.uniform(math.log(shortest_s), math.log(longest_s)))
        steps = max(1, round(alone_s / STEPS[MODELS.index(model)][0]))
        limit_min = max(2, math.ceil(alone_s * draw.uniform(4.0, 10.0) / 60))
        made.append(RackJob(f"job{number:02}", model, gpus, steps, round(submit_s, 2), limit_min))
        submit_s += draw.expovariate(rate)
    return tuple(made)
