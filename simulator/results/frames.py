"""Results as DataFrames, for notebooks. Needs pandas (the extra `notebook`).

Times are seconds on the clock of the trace's file, as floats: NaN where there is none. `jobs.csv` has the same columns, exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from policies.model import FloatColumn, IntColumn
from simulator.errors import SettingError
from simulator.results.files import busy_gpus
from simulator.results.metrics import Figure
from simulator.results.result import NOT_YET, Result
from simulator.traces.trace import NS_PER_S


def jobs_frame(result: Result) -> pd.DataFrame:
    """Return one row for each job of the trace, in its order, with the job's id as index."""
    jct = np.where(result.done, result.finish_ns - result.submit_ns, NOT_YET)
    return pd.DataFrame(
        {
            "user": result.user,
            "model": result.model,
            "num_gpus": result.num_gpus,
            "submit_time_s": _seconds(result.submit_ns, result.begin_ns),
            "first_start_s": _seconds(result.first_start_ns, result.begin_ns),
            "finish_time_s": _seconds(result.finish_ns, result.begin_ns),
            "duration_s": _seconds(result.duration_ns),
            "jct_s": _seconds(jct),
            "wait_s": _seconds(result.wait_ns),
            "service_s": _seconds(result.service_ns),
            "overhead_s": _seconds(result.overhead_ns),
            "lost_s": _seconds(result.lost_ns),
            "gpu_s": _seconds(result.attained_gpu_ns),
            "preemptions": result.stops,
            "moves": result.moves,
            "resizes": result.resizes,
            "failures": result.failures,
            "nodes": result.nodes(),
        },
        index=pd.Index(result.job_ids, name="job_id"),
    )


def series_frame(result: Result) -> pd.DataFrame:
    """Return the cluster's state after each instant with an event, with the time in seconds as index.

    Raises SettingError for a run that was not recorded.
    """
    series = result.series
    if series is None:
        raise SettingError(f"the run of {result.policy} was not recorded; give record=True")
    return pd.DataFrame(
        {
            "busy_gpus": busy_gpus(result, series),
            "free_gpus": series.free,
            "waiting_jobs": series.waiting,
            "running_jobs": series.running,
            "empty_nodes": series.empty,
        },
        index=pd.Index(_seconds(series.time, result.begin_ns), name="time_s"),
    )


def figures_frame(figures: Mapping[str, Mapping[str, Figure]]) -> pd.DataFrame:
    """Return one row for each policy, with its figures (`metrics.summary`, or the JSON of `headway-sim compare`) as columns."""
    rows = [dict(found) for found in figures.values()]
    return pd.DataFrame(rows, index=pd.Index(list(figures), name="policy"), dtype=float)


def _seconds(column: IntColumn, begin_ns: int = 0) -> FloatColumn:
    """Return nanoseconds after `begin_ns` as seconds; NaN where there is no time."""
    return np.where(column == NOT_YET, np.nan, (column + begin_ns) / NS_PER_S)
