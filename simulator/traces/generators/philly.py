"""Any number of jobs as in Microsoft's Philly clusters (Jeon et al., USENIX ATC 2019).

Sizes and durations follow counts in the public log of 2017 (111,597 jobs with GPUs and a run time): the share of
each size, and for each class of sizes (1, 2 to 4, 5 to 8, more) the percentiles of the run time, between which its logarithm is
linear. So the tail is the log's: 10 % of one-GPU jobs run longer than 3.6 hours and 1 % longer than 5 days; larger jobs are
longer. `load` on a cluster sets their rate of arrival; without it they arrive as in the log, one in 106 s.

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
"""Counts of the log's jobs by size; the few of other sizes count as the next power of two."""
CLASSES = ((1, 1), (2, 4), (5, 8), (9, 1 << 62))
RUN_TIMES = (
    (0, 1, 1, 1, 1),
    (1, 14, 8, 12, 12),
    (5, 41, 14, 38, 35),
    (10, 57, 18, 75, 50),
    (15, 66, 24, 149, 79),
    (20, 73, 36, 256, 154),
    (25, 104, 75, 416, 279),
    (30, 196, 140, 794, 421),
    (35, 348, 240, 1590, 830),
    (40, 584, 443, 3110, 1750),
    (45, 845, 660, 5660, 3420),
    (50, 1140, 1280, 10600, 6730),
    (55, 1490, 4030, 14800, 12900),
    (60, 1880, 11900, 23900, 14600),
    (65, 2330, 17700, 43100, 22800),
    (70, 2660, 35500, 70600, 34300),
    (75, 3500, 59800, 104_000, 52100),
    (80, 4540, 88200, 162_000, 66200),
    (85, 6230, 137_000, 222_000, 107_000),
    (90, 12800, 206_000, 332_000, 168_000),
    (92.5, 22000, 270_000, 422_000, 222_000),
    (95, 44400, 405_000, 592_000, 349_000),
    (96, 64700, 484_000, 676_000, 448_000),
    (97, 97200, 584_000, 829_000, 538_000),
    (98, 183_000, 749_000, 1_010_000, 644_000),
    (98.5, 277_000, 907_000, 1_230_000, 728_000),
    (99, 448_000, 1_090_000, 1_600_000, 959_000),
    (99.5, 955_000, 1_540_000, 2_170_000, 1_430_000),
    (99.9, 2_740_000, 2_850_000, 3_890_000, 1_770_000),
    (100, 5_200_000, 5_190_000, 4_720_000, 2_420_000),
)
"""Percentiles of the run time in seconds for each class of sizes, to three digits."""
MODELS = ("resnet50", "vgg16", "inception3", "bert", "gpt2", "deepspeech2")
BATCH_SIZES = (128, 128, 128, 64, 128, 64)


@dataclass(frozen=True, kw_only=True)
class Philly(Workload):
    """One trace."""

    jobs: int = 10_000
    """Number of jobs."""
    arrivals: str = "poisson"
    """Kind of arrivals; `daily` follows the hours of the log."""
    mean_gap_s: float = 106.0
    """Mean seconds between two submissions, as in the log; `load` overrides it."""
    cluster_gpus: int = 2490
    """GPUs of the cluster to which `load` refers; larger jobs are not drawn."""
    users: int = 300
    """Number of users: the n-th submits 1/n as often as the first; chosen."""
    longest_s: float = 5_200_000.0
    """Maximum run time: the longest in the log is 60 days."""


def generate(workload: Philly) -> Trace:
    """Generate the trace of that seed."""
    workload.check()
    if workload.users < 1 or not workload.longest_s >= 1:
        raise TraceError("users and longest_s must be at least 1", mend="give users=300, longest_s=5200000")
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
    """Draw a run time for each job by the class of its size."""
    percent = rng.uniform(0, 100, len(gpus))
    percents, *known = np.array(RUN_TIMES).T
    seconds = np.empty(len(gpus))
    for (least, most), times in zip(CLASSES, known, strict=True):
        of_class = (gpus >= least) & (gpus <= most)
        seconds[of_class] = np.exp(np.interp(percent[of_class], percents, np.log(times)))
    return seconds
