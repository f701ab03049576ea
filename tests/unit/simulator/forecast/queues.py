"""Small queues for the tests of forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.forecast.queue import PastJobs, Queue, QueueJobs


def queue(
    running: Sequence[tuple[int, float]],
    waiting: Sequence[int],
    *,
    nodes: Sequence[int] = (4,),
    limit_s: float = np.nan,
) -> Queue:
    """A queue at time 100,000 s. Running jobs are (GPUs, seconds that they have run), all on node 0; of waiting ones the GPUs."""
    gpus = np.array([*(each for each, _ in running), *waiting], dtype=np.int64)
    rows = len(gpus)
    most = max(nodes)
    return Queue(
        now_s=100_000.0,
        node_gpus=tuple(nodes),
        node_up=(True,) * len(nodes),
        parts=[((size, 1),) if 0 < size <= most else () for size in range(max(gpus.tolist(), default=0) + 1)],
        jobs=QueueJobs(
            gpus=gpus,
            size=gpus,
            group=np.zeros(rows, dtype=np.int64),
            kind=gpus,
            running=np.arange(rows) < len(running),
            service_s=np.array([*(served for _, served in running), *(0.0 for _ in waiting)]),
            attained_gpu_s=np.zeros(rows),
            estimate_s=np.full(rows, limit_s),
            limit_s=np.full(rows, limit_s),
            fixed=np.zeros(rows, dtype=np.bool_),
            ending=np.zeros(rows, dtype=np.bool_),
            places={row: ([0], [each]) for row, (each, _) in enumerate(running)},
        ),
    )


def past(durations: Sequence[float], *, gpus: int = 1, every_s: float = 100.0) -> PastJobs:
    """Ended jobs of one size, one submitted every so many seconds up to 100,000 s, in these run times in turn."""
    rows = len(durations)
    submit_s = 100_000.0 - every_s * np.arange(rows, 0, -1)
    same = np.full(rows, gpus, dtype=np.int64)
    return PastJobs(
        submit_s=submit_s,
        end_s=submit_s + np.array(durations),
        duration_s=np.array(durations, dtype=np.float64),
        gpus=same,
        size=same,
        group=np.zeros(rows, dtype=np.int64),
        kind=same,
        limit_s=np.full(rows, np.nan),
    )
