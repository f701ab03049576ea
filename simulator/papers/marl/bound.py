"""A lower bound of the average JCT over all schedulers' decisions."""

from __future__ import annotations

import numpy as np

from simulator.papers.marl.state.jobs import Jobs


def average_jct_bound_s(jobs: Jobs, interval_s: float) -> float:
    """Return the mean of each job's wait for its first interval plus its computing alone, without neighbours and transfers."""
    wait_s = jobs.arrival * interval_s - jobs.submit_s
    return float(np.mean(wait_s + jobs.steps * jobs.compute_s))
