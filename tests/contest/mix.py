"""The arrival script: which jobs come when, the same for every policy. Kinds differ in what of a step is communication."""

from __future__ import annotations

import random
from dataclasses import dataclass

WIDTH = 512
LAYER_BYTES = WIDTH * WIDTH * 4


@dataclass(frozen=True, slots=True)
class Kind:
    """One model that jobs train."""

    name: str
    layers: int
    """A megabyte of gradients each."""
    compute_s: float
    """GPU time of a step."""

    def step_s(self, nodes: int, bytes_per_s: float) -> float:
        """Alone, about: it computes, then it reduces around a ring of so many nodes."""
        return self.compute_s + 2 * (nodes - 1) / nodes * self.layers * LAYER_BYTES / bytes_per_s


KINDS = (
    Kind("vision", layers=2, compute_s=0.40),
    Kind("language", layers=5, compute_s=0.25),
    Kind("ranking", layers=8, compute_s=0.08),
)
"""At 200 Mbit/s and on two nodes they communicate for 17, 46 and 81 % of a step."""
SHAPES = ((1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 2), (4, 4))
"""Nodes, and GPUs on each: with less than 8 there is room for others there, and the NIC is shared."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job. One process trains on each of its nodes, whatever GPUs it holds there."""

    name: str
    kind: Kind
    nodes: int
    gpus_per_node: int
    steps: int
    submit_s: float
    """Seconds after the run's start."""

    @property
    def called(self) -> str:
        """Its job name in Slurm: jobs of one kind and shape are called alike, as users do who train a model again."""
        return f"{self.kind.name}-{self.nodes}x{self.gpus_per_node}"

    @property
    def limit_min(self) -> int:
        """The user's time limit: about four times what it takes alone."""
        return 6


def arrivals(jobs: int, seed: int, bytes_per_s: float, length_s: tuple[float, float], load: float) -> tuple[Job, ...]:
    """So many jobs, each alone between two lengths, at such a load of 4 nodes of 8 GPUs. The same for a seed, always."""
    draw = random.Random(seed)
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        kind, (nodes, gpus) = draw.choice(KINDS), draw.choice(SHAPES)
        alone_s = draw.uniform(*length_s)
        steps = max(10, round(alone_s / kind.step_s(nodes, bytes_per_s)))
        made.append(Job(f"job{number:02}", kind, nodes, gpus, steps, round(submit_s, 2)))
        # Mean work of a job, over what the cluster does in a second.
        work = sum(each[0] * each[1] for each in SHAPES) / len(SHAPES) * sum(length_s) / 2
        submit_s += draw.expovariate(1.0 / (work / (load * 32)))
    return tuple(made)


def one_of_each(seconds: float, bytes_per_s: float) -> tuple[Job, ...]:
    """Every kind on every number of nodes, to be trained alone for so long."""
    shapes = {nodes: gpus for nodes, gpus in SHAPES if nodes > 1}
    pairs = [(kind, nodes, gpus) for nodes, gpus in shapes.items() for kind in KINDS]
    return tuple(
        Job(f"alone{at:02}", kind, nodes, gpus, round(seconds / kind.step_s(nodes, bytes_per_s)), 0.0)
        for at, (kind, nodes, gpus) in enumerate(pairs, 1)
    )
