"""Seeded random traces of difficult cases: clumps at one instant, equal durations, zero gaps, gangs up to the whole cluster.

All times are whole milliseconds, so that a simulator that counts in integers can be exact too.
"""

from __future__ import annotations

import random
from fractions import Fraction

from tests.reference.model import Job

ROUND_MS = 300_000
LONGEST_MS = 7_200_000


def random_trace(seed: int, jobs: int, nodes: int, gpus_per_node: int, *, pinned_share: float = 0.0) -> list[Job]:
    """A trace of that many jobs, each of which fits on the cluster; the same for the same arguments.

    About `pinned_share` of the jobs are not preemptible. Few, some or many of them are larger than a node. Half of the traces
    have their rows out of order of submission. Durations are positive. Offered load is about half, once or twice what the
    cluster can do.
    """
    rng = random.Random(seed)
    palette = [duration_ms(rng) for _ in range(3)]
    durations = [rng.choice(palette) if rng.random() < 0.4 else duration_ms(rng) for _ in range(jobs)]
    gangs = rng.choice([0.05, 0.2, 0.4])
    sizes = [
        gang(rng, nodes, gpus_per_node) if rng.random() < gangs else rng.randint(1, gpus_per_node) for _ in range(jobs)
    ]
    work = sum(size * duration for size, duration in zip(sizes, durations, strict=True))
    mean_gap_ms = work / max(1, jobs) / (nodes * gpus_per_node) / rng.choice([0.5, 1.0, 2.0])
    submits = submits_ms(rng, durations, mean_gap_ms)
    pinned = [rng.random() < pinned_share for _ in range(jobs)]
    rows = list(zip(submits, sizes, durations, pinned, strict=True))
    if rng.random() < 0.5:
        rng.shuffle(rows)
    return [
        Job(f"job{row}", Fraction(submit, 1000), size, Fraction(duration, 1000), preemptible=not fixed)
        for row, (submit, size, duration, fixed) in enumerate(rows)
    ]


def duration_ms(rng: random.Random) -> int:
    """Draw a duration from a millisecond to two hours: mostly long and log-uniform, sometimes whole rounds."""
    if rng.random() < 0.2:
        return ROUND_MS * rng.randint(1, 8)
    if rng.random() < 0.1:
        return rng.randint(1, 3)
    seconds: float = (LONGEST_MS / 1000) ** rng.random()
    return round(1000 * seconds)


def gang(rng: random.Random, nodes: int, gpus_per_node: int) -> int:
    """Draw a size: whole nodes, nodes and a rest, or the whole cluster."""
    total = nodes * gpus_per_node
    return rng.choice([gpus_per_node * rng.randint(1, nodes), rng.randint(1, total), rng.randint(1, total), total])


def submits_ms(rng: random.Random, durations: list[int], mean_gap_ms: float) -> list[int]:
    """Draw ascending instants: clumps, arrivals when a job that started at once would finish or when a round begins, and gaps."""
    submits: list[int] = []
    now = rng.choice([0, 1, ROUND_MS, 86_400_123])
    for row in range(len(durations)):
        kind = rng.random()
        if kind < 0.35:
            pass  # at the same instant as the job before
        elif kind < 0.5 and row:
            earlier = rng.randrange(row)
            now = max(now, submits[earlier] + durations[earlier])
        elif kind < 0.55:
            now = (now // ROUND_MS + 1) * ROUND_MS
        else:
            now += round(rng.expovariate(1) * mean_gap_ms)
        submits.append(now)
    return submits
