"""Alibaba's GPU cluster of 2023 (Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023; `openb_pod_list_default.csv`).

Columns name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time; times are
seconds on one clock. The run time is deletion_time - scheduled_time. Pods that share a GPU (gpu_milli below 1000) count as one
GPU, because jobs here occupy whole ones, or are counted in shares (`simulator.traces.formats.parts`); gpu_milli is kept. Dropped:
pods without GPUs, pods that were never scheduled or ran for no time, and pods that still ran at the end of the log (their phase is
Running, and their deletion_time the latest of the list). The quality of service is kept as the virtual cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, UNFINISHED, Loaded, Log, Options, joined
from simulator.traces.formats.parts import in_shares
from simulator.traces.table import read_table

COLUMNS = ("name", "num_gpu", "gpu_milli", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the pods of these lists as jobs."""
    return joined([_load(path, options.gpu_shares) for path in paths], paths)


def _load(path: Path, shares: int) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    start, end = log.instants("scheduled_time"), log.instants("deletion_time")
    log.drop(log.numbers("num_gpu") == 0, NO_GPUS)
    log.drop((start < 0) | (end <= start), NO_RUN_TIME)
    log.drop(np.array([phase == "Running" for phase in log.texts("pod_phase")]) & (end == end.max()), UNFINISHED)
    return log.loaded(
        job_id="name",
        submit_time_s="creation_time",
        num_gpus=_sizes(log, shares) if shares > 1 else "num_gpu",
        duration_s=end - start,
        vc="qos",
        status="pod_phase",
        gpu_milli="gpu_milli",
        gpu_spec="gpu_spec",
    )


def _sizes(log: Log, shares: int) -> list[str]:
    """Return the shares of each pod; a text that is no number of GPUs stays as it is, so that the error names it."""
    gpus, milli = log.numbers("num_gpu"), log.numbers("gpu_milli")
    parts = np.where((gpus == 1) & (milli > 0) & (milli < 1000), milli / 1000, gpus)
    numbers = np.where(gpus > 0, in_shares(parts, shares), 0).tolist()
    return [str(number) if number else text for number, text in zip(numbers, log.texts("num_gpu"), strict=True)]
