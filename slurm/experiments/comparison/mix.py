"""The arrivals of jobs, the same for every policy. Kinds differ in the share of communication in a step."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

NODES, GPUS = 4, 8
"""Nodes of the cluster, and GPUs on each."""
WIDTH = 512
LAYER_BYTES = WIDTH * WIDTH * 4


@dataclass(frozen=True, slots=True)
class Kind:
    """One model that jobs train."""

    name: str
    layers: int
    """Number of layers, each with a megabyte of gradients."""
    compute_s: float
    """GPU time of a step."""

    def step_s(self, nodes: int, bytes_per_s: float) -> float:
        """Return the approximate time of a step alone: computation, then a ring reduction over so many nodes."""
        return self.compute_s + 2 * (nodes - 1) / nodes * self.layers * LAYER_BYTES / bytes_per_s


KINDS = (
    Kind("vision", layers=2, compute_s=0.40),
    Kind("language", layers=5, compute_s=0.25),
    Kind("ranking", layers=8, compute_s=0.08),
)
"""At 200 Mbit/s and on two nodes communication takes 17, 46 and 81 % of a step."""
SHAPES = ((1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4))
"""Nodes, and GPUs on each: on a node of which it uses fewer than 8, other jobs can run and share the NIC."""
ASKED = (4.0, 10.0)
"""Smallest and largest ratio of the user's time limit to the job's time alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job. One process trains on each of its nodes, with any number of GPUs."""

    name: str
    kind: Kind
    nodes: int
    gpus_per_node: int
    steps: int
    submit_s: float
    """Seconds after the run's start."""
    limit_min: int
    """The user's time limit, the only duration that policies know."""

    @property
    def called(self) -> str:
        """Job name in Slurm: the same for every training of this model on so many nodes."""
        return f"{self.kind.name}-{self.nodes}n"


def arrivals(jobs: int, seed: int, bytes_per_s: float, length_s: tuple[float, float], load: float) -> tuple[Job, ...]:
    """Return a number of jobs that load 4 nodes of 8 GPUs. The same seed always gives the same jobs.

    Their durations alone are log-uniform between two lengths.
    """
    draw = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    shortest_s, longest_s = length_s
    mean_s = (longest_s - shortest_s) / math.log(longest_s / shortest_s) if longest_s > shortest_s else longest_s
    work = sum(nodes * gpus for nodes, gpus in SHAPES) / len(SHAPES) * mean_s
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        kind, (nodes, gpus) = draw.choice(KINDS), draw.choice(SHAPES)
        alone_s = math.exp(draw.uniform(math.log(shortest_s), math.log(longest_s)))
        steps = max(10, round(alone_s / kind.step_s(nodes, bytes_per_s)))
        limit_min = max(2, math.ceil(alone_s * draw.uniform(*ASKED) / 60))
        made.append(Job(f"job{number:02}", kind, nodes, gpus, steps, round(submit_s, 2), limit_min))
        submit_s += draw.expovariate(load * NODES * GPUS / work)
    return tuple(made)


def one_of_each(seconds: float, bytes_per_s: float) -> tuple[Job, ...]:
    """Return a job of every kind on every number of nodes, which trains alone for that time."""
    shapes = {nodes: gpus for nodes, gpus in SHAPES if nodes > 1}
    pairs = [(kind, nodes, gpus) for nodes, gpus in shapes.items() for kind in KINDS]
    return tuple(
        Job(f"alone{at:02}", kind, nodes, gpus, round(seconds / kind.step_s(nodes, bytes_per_s)), 0.0, 5)
        for at, (kind, nodes, gpus) in enumerate(pairs, 1)
    )
