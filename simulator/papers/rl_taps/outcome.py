"""The figures of an episode: slowdown (equation 17), and those of other environments."""

from __future__ import annotations

import numpy as np

from simulator.papers.rl_taps.batch import RlTapsBatch
from simulator.papers.rl_taps.jobs import Floats

SLOWDOWN = "mean_slowdown"
_NAN = float("nan")


def slowdowns(batch: RlTapsBatch, row: int) -> Floats:
    """Return the slowdown of each job that has arrived: steps from its arrival to its finish over its length. A job that is not
    finished counts as finished at Tmax."""
    jobs = batch.jobs[row]
    assert jobs is not None
    arrived = jobs.arrival < batch.now[row]
    finish = batch.of.finish[row, : len(jobs)]
    until = np.where(finish > 0, finish, batch.options.max_steps)
    found: Floats = ((until - jobs.arrival) / jobs.length)[arrived]
    return found


def outcome(batch: RlTapsBatch, row: int) -> dict[str, float]:
    """Return the figures of that cluster's episode. Those of JCTs are NaN if a job is not finished."""
    jobs = batch.jobs[row]
    assert jobs is not None
    finish = batch.of.finish[row, : len(jobs)]
    slow = slowdowns(batch, row)
    is_whole = bool((finish > 0).all())
    jct_s = (finish - jobs.arrival) * batch.options.step_s
    steps = int(batch.now[row])
    return {
        "jobs": len(jobs),
        "finished": int((finish > 0).sum()),
        SLOWDOWN: float(slow.mean()) if len(slow) else _NAN,
        "p90_slowdown": float(np.percentile(slow, 90)) if len(slow) else _NAN,
        "avg_jct_s": float(jct_s.mean()) if is_whole else _NAN,
        "p90_jct_s": float(np.percentile(jct_s, 90)) if is_whole else _NAN,
        "makespan_s": float(finish.max() * batch.options.step_s) if is_whole else _NAN,
        "utilization": float(batch.busy[row] / (steps * batch.links.num_gpus)) if steps else _NAN,
        "preemptions": int(batch.stops[row]),
    }
