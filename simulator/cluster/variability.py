"""Nodes of one kind whose GPUs differ in speed: the `[variability]` table of a cluster file.

GPUs of one model are not equally fast: their clocks depend on the chip, its cooling and its power. `MEASURED` are the eight nodes
of four GPUs on which PAL was tested (Jain et al., SC 2024; `blox/32gpu-variability.csv` of hal-uw/blox-pal): the mean time of an
iteration of its most sensitive class of jobs, relative to the median GPU. The GPUs of one node differ there by at most 1.4 %, the
nodes by 12 %: so one number describes a node.

Each node of a file gets one of these numbers, drawn with replacement from `seed`; `scale` multiplies its distance from 1. Larger
clusters vary more (PAL reports nodes more than three times as slow on one of several hundred GPUs), which `scale` can stand for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

MEASURED = (1.0172, 0.9933, 0.9958, 0.9975, 1.0569, 0.9965, 1.0037, 1.1144)
"""Time of an iteration on each node, relative to the median GPU."""
LEAST = 0.05
"""No node is drawn faster than twenty times the median."""


def drawn_speeds(speeds: Sequence[float], seed: int, scale: float) -> tuple[float, ...]:
    """Return these speeds of nodes, each divided by a drawn time of an iteration."""
    draw = random.Random(f"variability {seed}")  # noqa: S311 - a reproducible draw, no secret
    times = [max(LEAST, 1.0 + scale * (draw.choice(MEASURED) - 1.0)) for _ in speeds]
    return tuple(speed / time for speed, time in zip(speeds, times, strict=True))
