"""The trained jobs: kinds with different shares of computation and communication, and a seeded trace of them."""

from __future__ import annotations

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
    """A megabyte of gradients each."""
    forward_s: float
    """GPU time of one step's forward pass."""
    backward_s: float


KINDS = (
    Kind("vision", layers=2, forward_s=0.15, backward_s=0.20),
    Kind("language", layers=3, forward_s=0.12, backward_s=0.18),
    Kind("ranking", layers=4, forward_s=0.05, backward_s=0.05),
)
"""At 100 Mbit/s on two nodes a step computes for 0.35, 0.30 and 0.10 s, and communicates for 0.17, 0.25 and 0.34 s."""
SHAPES = (1, 2, 4)
"""Nodes of a job."""
_SHARES = (0.25, 0.45, 0.30)
_GPUS = {1: (2, 4, 8), 2: (2, 4, 8), 4: (2, 4)}
"""Number of nodes → GPUs on each; with less than 8, other jobs can run there and share the NIC."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Durations of jobs and gaps between arrivals, seconds."""

    alone_s: float = 12.0
    """Duration of the runs from which the profiles are taken."""
    least_s: float = 10.0
    most_s: float = 22.0
    """The jobs of a trace have uniform durations alone between these two."""
    gap_s: float = 4.0
    """Mean of the exponential gaps between arrivals."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One job. One process trains on each of its nodes, whatever the number of its GPUs there."""

    name: str
    kind: Kind
    nodes: int
    gpus_per_node: int
    steps: int
    limit_min: int
    """The user's time limit: policies know no other duration."""
    submit_s: float
    """Seconds after the replay's start."""
    seed: int

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return self.nodes * self.gpus_per_node


def nominal_step_s(kind: Kind, nodes: int, bytes_per_s: float) -> float:
    """Return the approximate time of a step alone: accurate enough to choose the lengths of jobs."""
    sent_s = 2 * (nodes - 1) / nodes * kind.layers * LAYER_BYTES / bytes_per_s
    layer_s = kind.backward_s / kind.layers
    return kind.forward_s + max(layer_s + sent_s, kind.backward_s + sent_s / kind.layers)


def seeded_mix(jobs: int, seed: int, bytes_per_s: float, lengths: Lengths) -> tuple[TrainingJob, ...]:
    """Return a number of jobs. The same seed always gives the same jobs."""
    draw = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        kind = draw.choice(KINDS)
        nodes = draw.choices(SHAPES, _SHARES)[0]
        length = draw.uniform(lengths.least_s, lengths.most_s)
        made.append(
            TrainingJob(
                name=f"job{number:02}",
                kind=kind,
                nodes=nodes,
                gpus_per_node=draw.choice(_GPUS[nodes]),
                steps=round(length / nominal_step_s(kind, nodes, bytes_per_s)),
                limit_min=max(2, round(length / 4)),
                submit_s=round(submit_s, 2),
                seed=number,
            )
        )
        submit_s += draw.expovariate(1 / lengths.gap_s)
    return tuple(made)
