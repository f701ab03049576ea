"""SenseTime's Helios clusters, 2020 (Hu et al., "Characterization and Prediction of Deep Learning Workloads", SC 2021).

`cluster_log.csv`: job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue. Times are
local dates without a zone; `duration` and `queue` are seconds, `duration` without the queueing. Dropped: jobs without GPUs,
jobs that have not ended (one has the state SUSPENDED), jobs without run time. Kept as they are: states (COMPLETED, FAILED,
CANCELLED, TIMEOUT, NODE_FAIL) as status; CPUs, nodes and the measured queueing as columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import (
    NO_GPUS,
    NO_RUN_TIME,
    SLURM_UNFINISHED,
    UNFINISHED,
    Loaded,
    Log,
    Options,
    joined,
)
from simulator.traces.table import read_table

COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these logs."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    log.drop(log.numbers("gpu_num") == 0, NO_GPUS)
    log.drop(np.isin(log.texts("state"), SLURM_UNFINISHED), UNFINISHED)
    log.drop(log.numbers("duration") == 0, NO_RUN_TIME)
    return log.loaded(
        job_id="job_id",
        submit_time_s=log.instants("submit_time"),
        num_gpus="gpu_num",
        duration_s="duration",
        user="user",
        vc="vc",
        status="state",
        cpu_num="cpu_num",
        node_num="node_num",
        queue_s="queue",
    )
