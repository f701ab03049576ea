"""Workloads of the simulators of Pollux (Qiao et al., OSDI 2021) and Sia (Subramanya et al., SOSP 2023).

`workload-N.csv`: name,time,application,num_replicas,batch_size; time is the submit time in seconds. The log does not say how
long a job takes: that follows from the simulators' goodput models. Here a job is as much work as the middle (geometric mean)
of its application's category in GPU hours (Pollux, table 1: small 0 to 1, medium 1 to 10, large 10 to 100, extra large 100 to
1,000; small counts from 0.1), divided by the requested GPUs. So orders of magnitude are the paper's, and jobs of one
application and size are equal. BERT, which Sia adds, counts as large. Dropped: jobs of other applications.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import Loaded, Log, Options, joined
from simulator.traces.table import read_table
from simulator.traces.trace import NS_PER_S

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
SMALL, MEDIUM, LARGE, EXTRA_LARGE = sqrt(0.1), sqrt(10.0), sqrt(1e3), sqrt(1e5)
GPU_HOURS = {
    "cifar10": SMALL,
    "ncf": SMALL,
    "deepspeech2": MEDIUM,
    "yolov3": LARGE,
    "bert": LARGE,
    "imagenet": EXTRA_LARGE,
}


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these workloads."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    hours = np.array([GPU_HOURS.get(application, 0.0) for application in log.texts("application")])
    log.drop(hours == 0, "jobs of applications whose work is not known")
    gpus = np.maximum(np.nan_to_num(log.numbers("num_replicas"), nan=1.0), 1.0)
    return log.loaded(
        job_id="name",
        submit_time_s="time",
        num_gpus="num_replicas",
        duration_s=np.round(hours * 3600 / gpus).astype(np.int64) * NS_PER_S,
        model="application",
        batch_size="batch_size",
    )
