"""Ten clusters of Microsoft's internal training platform, 2021 (Gu et al., "ElasticFlow", ASPLOS 2023, and its traces).

`clusterNN.csv`: job_id,submission_time,duration,num_gpu; the generated workloads beside them add num_iteration, model_name,
deadline, batch_size. All times are seconds on one clock for all clusters. Each file is one virtual cluster. Dropped: rows of
no duration (the published files have none).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, Column, Loaded, Log, Options, joined
from simulator.traces.read import name_of
from simulator.traces.table import read_table

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
KEPT = {"model": "model_name", "batch_size": "batch_size", "deadline_s": "deadline", "num_iteration": "num_iteration"}


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these logs."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(read_table(path, COLUMNS))
    log.drop(log.numbers("num_gpu") == 0, NO_GPUS)
    log.drop(log.numbers("duration") == 0, NO_RUN_TIME)
    optional: dict[str, Column] = {name: column for name, column in KEPT.items() if column in log.table.columns}
    return log.loaded(
        job_id="job_id",
        submit_time_s="submission_time",
        num_gpus="num_gpu",
        duration_s="duration",
        vc=[name_of(path)] * log.table.rows,
        **optional,
    )
