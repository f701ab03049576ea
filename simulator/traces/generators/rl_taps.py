"""The workload of RL-TAPS (sections 4.6.2 and 5.1, appendix A).

Given by the paper: one job a time step for the first 400 steps; the length of half of the jobs uniform in 1 to 3, of the other half
in 6 to 10; the GPUs of half of the jobs uniform in 1 to 7, of the other half in 8 to 12; the architecture is one of the 35
classifiers of albanie/convnet-burden; the mini-batch one of 32, 64, 128, 256, 512.

A step is a row of the paper's image, 48.3 s (appendix A: 1,000 iterations of 256 examples of 20 GFLOP on a P100 are ten rows, at
10.6 TFLOPS, the constant of its published code). The work is length x GPUs x d_cell (equation 11); GPUs run at 0.9 of their
advertised speed (equation 10), so that a job alone, without its reduction, takes length x 48.3 / 0.9 s. The reduction is a
slowdown and no part of the duration. Left open, and chosen here: whether "roughly half" is a coin for each job (it is).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import IntColumn
from simulator.errors import TraceError
from simulator.traces.generators.workload import Workload, chosen, made, named, nanoseconds
from simulator.traces.trace import Trace

MODELS = (
    *("alexnet", "caffenet", "squeezenet1-0", "squeezenet1-1", "vgg-f", "vgg-m", "vgg-s", "vgg-m-2048", "vgg-m-1024"),
    *("vgg-m-128", "vgg-vd-16-atrous", "vgg-vd-16", "vgg-vd-19", "googlenet", "resnet18", "resnet34", "resnet-50"),
    *("resnet-101", "resnet-152", "resnext-50-32x4d", "resnext-101-32x4d", "resnext-101-64x4d", "inception-v3"),
    *("SE-ResNet-50", "SE-ResNet-101", "SE-ResNet-152", "SE-ResNeXt-50-32x4d", "SE-ResNeXt-101-32x4d", "SENet"),
    *("SE-BN-Inception", "densenet121", "densenet161", "densenet169", "densenet201", "mcn-mobilenet"),
)
BATCH_SIZES = (32, 64, 128, 256, 512)
STEP_S = 1000 * 256 * 20e9 / 10.6e12 / 10
"""Seconds of one row: 48.3."""


@dataclass(frozen=True, kw_only=True)
class RLTaps(Workload):
    """One job sequence."""

    jobs: int = 400
    """Number of jobs."""
    arrivals: str = "even"
    """Kind of arrivals."""
    mean_gap_s: float = STEP_S
    """Seconds between two submissions: one step."""
    cluster_gpus: int = 32
    """GPUs of the cluster: 8 nodes of 4."""
    short: tuple[int, int] = (1, 3)
    """Steps of half of the jobs, both ends included."""
    long: tuple[int, int] = (6, 10)
    """Steps of the other half."""
    narrow: tuple[int, int] = (1, 7)
    """GPUs of half of the jobs."""
    wide: tuple[int, int] = (8, 12)
    """GPUs of the other half."""
    step_s: float = STEP_S
    """Seconds of a step, at the GPU's advertised speed."""
    efficiency: float = 0.9
    """Share of the advertised speed that is reached."""
    elastic: float = 0.0
    """Share of the jobs that may have any number of GPUs, as all may in the paper's environment; the others have a fixed size."""


def generate(workload: RLTaps) -> Trace:
    """Generate the sequence of that seed."""
    workload.check()
    ranges = (workload.short, workload.long, workload.narrow, workload.wide)
    if any(len(ends) != 2 or not 1 <= ends[0] <= ends[1] for ends in ranges):
        raise TraceError("a range must be two whole numbers, the first not the larger", mend="give, say, short=1/3")
    if not (workload.step_s > 0 and 0 < workload.efficiency <= 1):
        raise TraceError(
            "step_s must be positive and efficiency between 0 and 1", mend="give step_s=48.3, efficiency=0.9"
        )
    if not 0 <= workload.elastic <= 1:
        raise TraceError(f"elastic is {workload.elastic}", mend="give a share from 0 to 1")
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    model = chosen(rng, MODELS, jobs)
    length = _either(rng, jobs, workload.short, workload.long)
    gpus = _either(rng, jobs, workload.narrow, workload.wide)
    fewest, most = _sizes(workload, gpus)
    return made(
        "rl-taps",
        workload,
        rng,
        gpus,
        nanoseconds(length * workload.step_s / workload.efficiency),
        model=named(MODELS, model),
        batch_size=rng.choice(np.array(BATCH_SIZES), jobs),
        min_gpus=fewest,
        max_gpus=most,
        extra={"length_steps": list(map(str, length.tolist()))},
    )


def _sizes(workload: RLTaps, gpus: IntColumn) -> tuple[IntColumn | None, IntColumn | None]:
    """Return the fewest and the most GPUs of each job; None if no job is elastic."""
    if not workload.elastic:
        return None, None
    # A generator of its own: the jobs are the same at every share.
    elastic = np.random.default_rng((workload.seed, 7)).random(workload.jobs) < workload.elastic
    return np.where(elastic, 1, gpus), np.where(elastic, workload.cluster_gpus, gpus)


def _either(rng: np.random.Generator, jobs: int, one: tuple[int, int], other: tuple[int, int]) -> IntColumn:
    """Draw uniformly from one of two equally likely ranges."""
    coin = rng.uniform(size=jobs) < 0.5
    return np.where(coin, rng.integers(*one, jobs, endpoint=True), rng.integers(*other, jobs, endpoint=True))
