"""The workload of contention-aware scheduling by reinforcement learning (section VI, "Traces", and its footnote 4).

Given by the paper: six models; four traces whose models come in the ratios of GNN:IMG:DLRM:LM:FSDP:MoE (normal 1:1:1:1:1:1, heavy
1:1:1:1:4:4, medium 1:1:4:4:1:1, low 4:4:1:1:1:1); sets of 256 shuffled jobs; a random GPU demand of up to 32; training that
takes one hour in an isolated cluster; configurations drawn at random.

Left open, and chosen here: demands are powers of two from 1 to 32, equally likely (the published code draws 2, 4 and 8); all jobs
arrive at once, as in the published code; batch sizes, which have no effect here, are powers of two. Another seed is another set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, made, named, nanoseconds
from simulator.traces.trace import Trace

MODELS = ("GraphSage", "MobileNetV3", "DLRM", "Transformer-XL", "FSDP", "MoE")
MIXES = {
    "normal": (1, 1, 1, 1, 1, 1),
    "heavy": (1, 1, 1, 1, 4, 4),
    "medium": (1, 1, 4, 4, 1, 1),
    "low": (4, 4, 1, 1, 1, 1),
}


@dataclass(frozen=True, kw_only=True)
class ContentionRL(Workload):
    """One set of jobs."""

    jobs: int = 256
    """Number of jobs."""
    arrivals: str = "batch"
    """Kind of arrivals."""
    mean_gap_s: float = 300.0
    """Seconds between two submissions, unless all arrive at once; chosen."""
    cluster_gpus: int = 32
    """GPUs of the cluster: 4 nodes of 8."""
    mix: str = "normal"
    """Amount of communication: normal, heavy, medium or low."""
    demands: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """The GPU demands, equally likely."""
    duration_s: float = 3600.0
    """Training time in an isolated cluster; its mean if times differ."""
    duration_spread: float = 0.0
    """Standard deviation of the logarithms of log-normal training times; 0: all times are equal. Chosen."""
    batch_sizes: tuple[int, ...] = (16, 32, 64, 128, 256)
    """Samples of one GPU, equally likely."""


def generate(workload: ContentionRL) -> Trace:
    """Generate the set of jobs of that seed."""
    workload.check()
    if workload.mix not in MIXES:
        raise TraceError(f"there is no mix {workload.mix!r}", mend=f"give one of {', '.join(MIXES)}")
    if (
        not workload.demands
        or min(workload.demands) < 1
        or not workload.duration_s > 0
        or not 0 <= workload.duration_spread <= 3
        or min(workload.batch_sizes) < 1
    ):
        raise TraceError(
            "demands, batch sizes and the duration must be positive, and its spread from 0 to 3",
            mend="give demands=2/4/8, duration_s=3600, duration_spread=0",
        )
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    models = rng.permutation(_in_ratio(MIXES[workload.mix], jobs))
    gpus = rng.choice(np.array(workload.demands, dtype=np.int64), jobs)
    durations_s = np.full(jobs, workload.duration_s)
    if workload.duration_spread:  # the mean of a log-normal number is exp(mu + spread^2 / 2)
        durations_s *= rng.lognormal(-(workload.duration_spread**2) / 2, workload.duration_spread, jobs)
    return made(
        "contention-rl",
        workload,
        rng,
        gpus,
        nanoseconds(durations_s),
        model=named(MODELS, models),
        batch_size=rng.choice(np.array(workload.batch_sizes, dtype=np.int64), jobs) * gpus,
    )


def _in_ratio(ratio: tuple[int, ...], jobs: int) -> list[int]:
    """Return indices in exactly that ratio; a remainder goes to the first ones."""
    pattern = [index for index, share in enumerate(ratio) for _ in range(share)]
    whole, rest = divmod(jobs, len(pattern))
    counts = [share * whole for share in ratio]
    for turn in range(rest):
        counts[pattern[turn * len(pattern) // rest]] += 1
    return [index for index, count in enumerate(counts) for _ in range(count)]
