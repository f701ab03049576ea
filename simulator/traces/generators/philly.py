"""Jobs as in Microsoft's Philly clusters, as many as are wanted (Jeon et al., USENIX ATC 2019).

Sizes and durations follow what was counted in the public log of 2017 (111,597 jobs with GPUs and a run time): the share of
each size, and for each class of sizes (1, 2 to 4, 5 to 8, more) the percentiles of the run time, between which its logarithm is
linear. So the tail is the log's: 10 % of one-GPU jobs run longer than 3.6 hours and 1 % longer than 5 days; larger jobs are
longer. `load` on a cluster sets how fast they come; without it they come as in the log, one in 106 s.

Left open, because the log does not have it, and chosen here: models and batch sizes (drawn from ElasticFlow's, which did the
same to another log of Microsoft's); users by Zipf's law; durations that do not depend on the user.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, chosen, made, named
from simulator.traces.trace import NS_PER_S, Trace

SIZES = (1, 2, 4, 8, 16, 24, 32, 64, 128)
SIZE_COUNTS = (96641, 2532, 5515, 5739, 876, 41, 214, 28, 11)
"""Of the log's jobs; the few of other sizes count as the next power of two."""
PERCENTS = (0, 1, 2.5, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 97.5, 99, 99.9, 100)
DURATIONS_S = {
    1: (1, 14, 24, 41, 57, 73, 196, 584, 1138, 1882, 2657, 4545, 12839, 44444, 135720, 447910, 2740787, 5196151),
    4: (1, 8, 11, 14, 18, 36, 140, 443, 1281, 11881, 35522, 88181, 206376, 404585, 637524, 1092909, 2848840, 5186309),
    8: (
        1,
        12,
        24,
        38,
        75,
        256,
        794,
        3108,
        10648,
        23933,
        70602,
        161867,
        331842,
        592128,
        932807,
        1602692,
        3892630,
        4721782,
    ),
    10**9: (
        1,
        12,
        22,
        35,
        50,
        154,
        421,
        1753,
        6732,
        14637,
        34334,
        66157,
        167617,
        349426,
        580526,
        959270,
        1770209,
        2424351,
    ),
}
"""Run times at those percents, by the largest size of a class."""
MODELS = ("resnet50", "vgg16", "inception3", "bert", "gpt2", "deepspeech2")
BATCH_SIZES = (128, 128, 128, 64, 128, 64)


@dataclass(frozen=True, kw_only=True)
class Philly(Workload):
    """One trace."""

    jobs: int = 10_000
    """How many jobs."""
    arrivals: str = "poisson"
    """How they come; `daily` follows the hours of the log."""
    mean_gap_s: float = 106.0
    """Seconds between two submits, on average, as in the log; `load` overrides it."""
    cluster_gpus: int = 2490
    """Of the cluster that `load` counts by; jobs larger than it are not drawn."""
    users: int = 300
    """Who submits: the n-th user 1/n as often as the first; chosen."""
    longest_s: float = 5_196_151.0
    """Run times are cut here: the longest in the log is 60 days."""


def generate(workload: Philly) -> Trace:
    """The trace of that seed."""
    workload.check()
    if workload.users < 1 or not workload.longest_s >= 1:
        raise TraceError("users and longest_s must be at least 1", mend="give users=300, longest_s=5196151")
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    sizes = [size for size in SIZES if size <= workload.cluster_gpus]
    gpus = np.array(sizes)[chosen(rng, [str(size) for size in sizes], jobs, SIZE_COUNTS[: len(sizes)])]
    seconds = np.minimum(durations_s(rng, gpus), workload.longest_s)
    model = chosen(rng, MODELS, jobs)
    users = [f"u{rank}" for rank in range(1, workload.users + 1)]
    return made(
        "philly",
        workload,
        rng,
        gpus,
        np.maximum(np.round(seconds), 1).astype(np.int64) * NS_PER_S,
        user=named(users, chosen(rng, users, jobs, [1 / rank for rank in range(1, len(users) + 1)])),
        model=named(MODELS, model),
        batch_size=np.array(BATCH_SIZES)[model],
    )


def durations_s(rng: np.random.Generator, gpus: IntColumn) -> FloatColumn:
    """A run time for each job by the class of its size."""
    percent = rng.uniform(0, 100, len(gpus))
    seconds = np.empty(len(gpus))
    least = 1
    for largest, known in DURATIONS_S.items():
        of_class = (gpus >= least) & (gpus <= largest)
        seconds[of_class] = np.exp(np.interp(percent[of_class], PERCENTS, np.log(known)))
        least = largest + 1
    return seconds
