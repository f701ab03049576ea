"""Shanghai AI Laboratory's Acme clusters Seren and Kalos, 2023 (Hu et al., "Characterization of Large Language Model
Development in the Datacenter", NSDI 2024).

`trace_seren.csv` and `trace_kalos.csv`: job_id,user,gpu_num,type,state,submit_time,start_time,end_time,duration,queue,... Dates
carry their zone. The run time is end_time - start_time: in Seren that is the column `duration`, but Kalos counts the queueing
into its `duration`. Dropped: jobs without GPUs, jobs that never started or ran for no time. `type` (what the job is for:
Pretrain, SFT, Evaluation, Debug, ...) is kept as a column of its own, it is not a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, Loaded, Log, Options, joined
from simulator.traces.table import read_table

COLUMNS = ("job_id", "user", "gpu_num", "state", "submit_time", "start_time", "end_time")


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these logs."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    start, end = log.instants("start_time"), log.instants("end_time")
    log.drop(log.numbers("gpu_num") == 0, NO_GPUS)
    log.drop((start < 0) | (end <= start), NO_RUN_TIME)
    return log.loaded(
        job_id="job_id",
        submit_time_s=log.instants("submit_time"),
        num_gpus=_whole(log.texts("gpu_num")),
        duration_s=np.where(start < 0, 0, end - start),
        user="user",
        vc=[path.name.removeprefix("trace_").split(".")[0]] * log.table.rows,
        status="state",
        type="type",
        node_num="node_num",
    )


def _whole(texts: Sequence[str]) -> list[str]:
    """Return GPUs without the `.0` of some rows."""
    return [text.removesuffix(".0") for text in texts]
