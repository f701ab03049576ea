"""The arrivals of elastic jobs, the same for every policy."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

WIDTH = 256
EPOCHS = (10, 100)


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """One job, which takes from 1 to `most_gpus` GPUs and asks for `gpus`."""

    name: str
    kind: str
    layers: int
    compute_s: float
    """Time of a step's kernels on one GPU."""
    gpus: int
    most_gpus: int
    steps: int
    epochs: int
    submit_s: float
    """Seconds after the run's start."""


KINDS = (("vision", 2, 0.40), ("language", 4, 0.60), ("ranking", 8, 0.20))
"""Name, layers (each 256 KiB of gradients), and time of the kernels of a step on one GPU."""


def arrivals(
    jobs: int, seed: int, length_s: tuple[float, float], gap_s: float, most_gpus: int
) -> tuple[ElasticJob, ...]:
    """Return a number of jobs; the same seed always gives the same.

    Durations at the requested size are log-uniform between two lengths, gaps exponential with that mean, both in seconds.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        kind, layers, compute_s = draw.choice(KINDS)
        gpus = draw.choice((1, 2, 4))
        seconds = math.exp(draw.uniform(*map(math.log, length_s)))
        steps = max(10, round(seconds / (compute_s / gpus)))
        epochs = round(math.exp(draw.uniform(*map(math.log, EPOCHS))))
        made.append(
            ElasticJob(f"job{number:02}", kind, layers, compute_s, gpus, most_gpus, steps, epochs, round(submit_s, 2))
        )
        submit_s += draw.expovariate(1.0 / gap_s)
    return tuple(made)
