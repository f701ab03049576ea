"""The workload of DL2 (section 6.1, table 1, figure 8).

Given by the paper: eight models, one drawn at random for each job; tens to hundreds of epochs; a mean duration of 147 minutes,
more than half of the jobs longer than one hour and some days long; 200 jobs on 500 servers, in slots of 20 minutes, by the
arrival pattern of a typical week (uniform and Poisson as well, section 6.4).

Left open, and chosen here: durations are log-normal with a median of 75 minutes, which gives 58 % of more than one hour and
0.5 % of more than one day; the week of figure 8a becomes the hours of a day in Philly; five jobs arrive in a slot; a job requests 1
to 4 workers and may be given 1 to 16 (the bound in its code), as many parameter servers as workers. As in the paper, jobs of one
model differ in their duration by their number of epochs: an epoch at the requested size takes the model's `EPOCH_S`, within 20 %
(data sets differ). The models' names and total batch sizes are those of its published measurements. A worker is one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, chosen, lognormal_s, made, named, nanoseconds
from simulator.traces.trace import Trace

MODELS = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification", "dssm", "wlm")
BATCH_SIZES = (32, 32, 128, 128, 64, 50, 256, 160)
EPOCH_S = (240.0, 240.0, 60.0, 60.0, 120.0, 15.0, 30.0, 60.0)
"""Seconds of an epoch at the requested size, by model; chosen so that most jobs train tens to hundreds of epochs."""
_DATA = 1.2
"""Largest data set of a model, as a multiple of its usual one; the smallest is the reciprocal."""


@dataclass(frozen=True, kw_only=True)
class DL2(Workload):
    """One sequence of jobs."""

    jobs: int = 200
    """Number of jobs."""
    arrivals: str = "daily"
    """Kind of arrivals."""
    mean_gap_s: float = 240.0
    """Mean seconds between two submissions: five in a slot of 20 minutes; chosen."""
    cluster_gpus: int = 4000
    """GPUs of the cluster: 500 nodes of 8."""
    most_requested: int = 4
    """Maximum of requested workers, from 1 on equally likely; chosen."""
    most_workers: int = 16
    """Maximum of allocated workers."""
    models: int = 8
    """Number of models that jobs train, the first of table 1; 4, then 6 and 8 are those of "unseen job types" (section 6.4)."""
    all_reduce: float = 0.0
    """Share of jobs without parameter servers (section 7): their `num_ps` is 0."""
    median_s: float = 4500.0
    """Median duration; chosen."""
    mean_s: float = 8820.0
    """Mean duration: 147 minutes."""


def generate(workload: DL2) -> Trace:
    """Generate the sequence of that seed."""
    workload.check()
    if not 1 <= workload.most_requested <= workload.most_workers:
        raise TraceError(
            "most_requested must lie between 1 and most_workers", mend="give most_requested=4, most_workers=16"
        )
    if not 0 < workload.median_s < workload.mean_s:
        raise TraceError("median_s must be more than 0 and less than mean_s", mend="give median_s=4500, mean_s=8820")
    if not 1 <= workload.models <= len(MODELS):
        raise TraceError(f"models is {workload.models}", mend=f"give a number from 1 to {len(MODELS)}")
    if not 0 <= workload.all_reduce <= 1:
        raise TraceError(f"all_reduce is {workload.all_reduce}", mend="give a share from 0 to 1")
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    model = chosen(rng, MODELS[: workload.models], jobs)
    workers = rng.integers(1, workload.most_requested, jobs, endpoint=True)
    seconds = np.maximum(lognormal_s(rng, jobs, median_s=workload.median_s, mean_s=workload.mean_s), 1.0)
    epoch_s = np.array(EPOCH_S)[model] * np.exp(rng.uniform(-np.log(_DATA), np.log(_DATA), jobs))
    epochs = np.maximum(np.rint(seconds / epoch_s), 1).astype(np.int64)
    # A generator of its own: the jobs are the same at every share.
    rings = np.random.default_rng((workload.seed, 7)).random(jobs) < workload.all_reduce
    return made(
        "dl2",
        workload,
        rng,
        workers,
        nanoseconds(seconds),
        model=named(MODELS, model),
        batch_size=np.array(BATCH_SIZES)[model],
        min_gpus=np.ones(jobs, dtype=np.int64),
        max_gpus=np.full(jobs, workload.most_workers),
        extra={
            "num_ps": list(map(str, np.where(rings, 0, workers).tolist())),
            "epochs": list(map(str, epochs.tolist())),
        },
    )
