"""The workload of SCHED2 (section IV-A, table II, figure 3).

Given by the paper: 15 servers of 8 GPUs; jobs sampled from a production trace of 6,261, vision 10 %, language 60 %, speech 30 %;
68 % of the jobs on one GPU (also 60 and 75 %); a mean gap of 172 s that "does not obey" Poisson; traces of 1,000 jobs; run times
from several minutes to hours; the models Alexnet, InceptionV3, Resnet-50 and VGG16 on ImageNet, Transformer on WMT16, DeepSpeech
on Common Voice.

Left open (figures only), and chosen here: the sizes of the other jobs (2, 4, 8, 16 GPUs at 19, 28, 34, 19 %); durations
log-normal with a median of 1 h and a mean of 90 min, which is the mean run time that the paper reports for its own placements
(5,422 s), cut at 3 minutes and 24 hours; gaps gamma with a coefficient of variation of 2. That is a load of 0.78 on the
120 GPUs with best locality. The paper's baselines wait longer than they do there:
`simulator.papers.sched2.reproduction.waits_by_load` finds the load at which they wait as long. Batch sizes are chosen too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, chosen, lognormal_s, made, named, nanoseconds
from simulator.traces.trace import Trace

MODELS = ("alexnet", "inception3", "resnet50", "vgg16", "transformer", "deepspeech")
MODEL_WEIGHTS = (0.025, 0.025, 0.025, 0.025, 0.60, 0.30)
BATCH_SIZES = (128, 64, 64, 64, 32, 32)
TRAINING_SEEDS = range(30)
"""Seeds of the 30 traces for training and tuning."""
TEST_SEEDS = range(1000, 1030)
"""Seeds of the 30 traces for results only."""
LARGER = (2, 4, 8, 16)
LARGER_WEIGHTS = (0.19, 0.28, 0.34, 0.19)


@dataclass(frozen=True, kw_only=True)
class Sched2(Workload):
    """One trace (episode) of jobs."""

    jobs: int = 1000
    """Number of jobs."""
    arrivals: str = "bursty"
    """Kind of arrivals."""
    mean_gap_s: float = 172.0
    """Mean seconds between two submissions."""
    cluster_gpus: int = 120
    """GPUs of the cluster: 15 nodes of 8."""
    one_gpu_share: float = 0.68
    """The share of jobs on one GPU; the paper also shows 0.60 and 0.75."""
    median_s: float = 3600.0
    """Median duration; chosen."""
    mean_s: float = 5400.0
    """Mean duration before it is cut; chosen."""


def generate(workload: Sched2) -> Trace:
    """Generate the trace of that seed."""
    workload.check()
    if not 0 <= workload.one_gpu_share <= 1:
        raise TraceError(f"one_gpu_share is {workload.one_gpu_share}", mend="give a share between 0 and 1")
    if not 0 < workload.median_s < workload.mean_s:
        raise TraceError("median_s must be more than 0 and less than mean_s", mend="give median_s=3600, mean_s=5400")
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    model = chosen(rng, MODELS, jobs, MODEL_WEIGHTS)
    larger = np.array(LARGER)[chosen(rng, [str(size) for size in LARGER], jobs, LARGER_WEIGHTS)]
    gpus = np.where(rng.uniform(size=jobs) < workload.one_gpu_share, 1, larger)
    seconds = np.clip(lognormal_s(rng, jobs, median_s=workload.median_s, mean_s=workload.mean_s), 180.0, 86_400.0)
    return made(
        "sched2",
        workload,
        rng,
        gpus,
        nanoseconds(seconds),
        model=named(MODELS, model),
        batch_size=np.array(BATCH_SIZES)[model] * gpus,
    )
