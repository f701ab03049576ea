"""Workloads of the simulator of Tiresias (Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019).

`60_job.csv` and its like: job_id,num_gpu,submit_time,iterations,model_name,duration,interval, times in seconds; `interval` (the
gap to the next submit) repeats what submit_time says and is dropped, with rows of no duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, Loaded, Log, Options, joined
from simulator.traces.table import read_table

COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these workloads."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    log.drop(log.numbers("num_gpu") == 0, NO_GPUS)
    log.drop(log.numbers("duration") == 0, NO_RUN_TIME)
    return log.loaded(
        job_id="job_id",
        submit_time_s="submit_time",
        num_gpus="num_gpu",
        duration_s="duration",
        model="model_name",
        iterations="iterations",
    )
