"""Time limits for traces that have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.traces.trace import NS_PER_S, Trace

_DAY_S = 86400
CHOICES_S = (900, 3600, 14400, 43200, *(_DAY_S * days for days in (1, 2, 4, 7, 14, 30, 90)))
"""The limits that users choose from, seconds."""
MOST_TIMES = 10.0
"""A user asks for at most so many times the run time, before the limit is rounded up to a choice."""


def with_limits(trace: Trace, seed: int) -> Trace:
    """Return the trace with a limit for each job that has none: the next choice above its run time times 1 to `MOST_TIMES`.

    The logarithm of that factor is uniform. No limit is shorter than the job.
    """
    rng = np.random.default_rng((seed, 0x6C696D6974))
    wanted_s = trace.duration_ns / NS_PER_S * np.exp(rng.uniform(0.0, np.log(MOST_TIMES), len(trace)))
    choices = np.array([*CHOICES_S, CHOICES_S[-1]], dtype=np.int64)
    chosen_ns = choices[np.searchsorted(CHOICES_S, wanted_s)] * NS_PER_S
    limit_ns = np.where(trace.limit_ns > 0, trace.limit_ns, np.maximum(chosen_ns, trace.duration_ns))
    return replace(trace, limit_ns=limit_ns)
