"""The workload of multi-agent scheduling (MARL; section VI, "Trace Workload", table I, figure 7).

Given by the paper: 20 schedulers (the pods of a fat-tree with k = 20) of 100 servers with 4 GPUs; jobs arrive at each scheduler,
15 in an interval of 30 minutes, by the pattern of Google's cluster traces, uniformly or as a Poisson process; the model is one of
the eight of table I, drawn at random; workers and parameter servers are drawn from 1 to 4 each (one worker is one GPU).

Left open, and chosen here: the number of epochs, and with it the duration, comes from "representative implementations": it is
the distribution of DL2, which has the same models (log-normal, median 75 minutes, mean 147); Google's pattern becomes the hours of
a day in Philly; batch sizes are those of DL2's measurements. The scheduler of a job is its virtual cluster, drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import TraceError
from simulator.traces.generators.dl2 import BATCH_SIZES, MODELS
from simulator.traces.generators.workload import Workload, chosen, lognormal_s, made, named, nanoseconds
from simulator.traces.trace import Trace

INTERVAL_S = 1800.0
JOBS_AN_INTERVAL = 15
SCHEDULERS = 20


@dataclass(frozen=True, kw_only=True)
class Marl(Workload):
    """The jobs of all schedulers."""

    jobs: int = 3000
    """Number of jobs: ten intervals of all schedulers."""
    arrivals: str = "daily"
    """Kind of arrivals; the paper also shows uniform and poisson."""
    mean_gap_s: float = INTERVAL_S / (JOBS_AN_INTERVAL * SCHEDULERS)
    """Mean seconds between two submissions, over all schedulers."""
    cluster_gpus: int = 8000
    """GPUs of the cluster: 2,000 nodes of 4."""
    schedulers: int = SCHEDULERS
    """Number of schedulers among which the jobs are divided; it does not change the gap."""
    most_workers: int = 4
    """Maximum of a job's workers, and of its parameter servers, from 1 on equally likely."""
    least_workers: int = 1
    """Minimum of a job's workers (2 on the paper's testbed, section VII)."""
    most_servers: int = 0
    """Maximum of a job's parameter servers, where it is another one (2 on the testbed); 0: as of its workers."""
    median_s: float = 4500.0
    """Median duration; chosen."""
    mean_s: float = 8820.0
    """Mean duration; chosen."""


def generate(workload: Marl) -> Trace:
    """Generate the jobs of that seed."""
    workload.check()
    if workload.schedulers < 1 or not 1 <= workload.least_workers <= workload.most_workers or workload.most_servers < 0:
        raise TraceError(
            "schedulers and least_workers must be at least 1, and most_workers at least as many",
            mend="give schedulers=20, least_workers=1, most_workers=4",
        )
    if not 0 < workload.median_s < workload.mean_s:
        raise TraceError("median_s must be more than 0 and less than mean_s", mend="give median_s=4500, mean_s=8820")
    rng = np.random.default_rng(workload.seed)
    jobs = workload.jobs
    model = chosen(rng, MODELS, jobs)
    workers = rng.integers(workload.least_workers, workload.most_workers, jobs, endpoint=True)
    servers = rng.integers(1, workload.most_servers or workload.most_workers, jobs, endpoint=True)
    seconds = np.maximum(lognormal_s(rng, jobs, median_s=workload.median_s, mean_s=workload.mean_s), 1.0)
    return made(
        "marl",
        workload,
        rng,
        workers,
        nanoseconds(seconds),
        vc=[f"scheduler-{at}" for at in rng.integers(0, workload.schedulers, jobs).tolist()],
        model=named(MODELS, model),
        batch_size=np.array(BATCH_SIZES)[model],
        extra={"num_ps": list(map(str, servers.tolist()))},
    )
