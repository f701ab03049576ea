"""The duration estimates that policies see."""

from __future__ import annotations

from typing import Self

import numpy as np

from policies.model import EstimateSource, IntColumn
from simulator.engine.settings import Estimates
from simulator.kernel.log import FinishLog
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace

UNKNOWN = -1


def known_at_submission(trace: Trace, estimates: Estimates, seed: int) -> tuple[IntColumn, EstimateSource]:
    """Return the estimated run times in ns (-1: unknown) and their source. For `history`, none is known at submission."""
    if estimates.kind == "limit":
        return trace.limit_ns, EstimateSource.TIME_LIMIT
    if estimates.kind == "noisy":
        generator = np.random.default_rng((seed, 0x6E6F6973))
        factors = generator.lognormal(0.0, estimates.sigma, trace.file_length)[trace.file_rows]
        noisy = np.clip(np.rint(trace.duration_ns * factors), 1.0, MAX_TIME_S * NS_PER_S)
        return noisy.astype(np.int64), EstimateSource.TRUTH
    if estimates.kind == "history":
        return np.full(len(trace), UNKNOWN, dtype=np.int64), EstimateSource.HISTORY
    return trace.duration_ns, EstimateSource.TRUTH


class History:
    """Mean run time of each user's finished jobs, by size and model.

    Invariant: exactly the first `seen` jobs of the log are in `sums`.
    """

    def __init__(self, trace: Trace) -> None:
        """Begin without finished jobs."""
        self._trace = trace
        self._seen = 0
        self._sums: dict[tuple[str, str, int], tuple[int, int]] = {}

    def estimate(self, index: int, log: FinishLog) -> int:
        """Return the estimate for the job of that row; -1 if no such job of that user has finished."""
        self._catch_up(log)
        count, total = self._sums.get(self._key(index), (0, 0))
        return total // count if count else UNKNOWN

    def _catch_up(self, log: FinishLog) -> None:
        for place in range(self._seen, len(log.index)):
            key = self._key(log.index[place])
            count, total = self._sums.get(key, (0, 0))
            self._sums[key] = count + 1, total + int(self._trace.duration_ns[log.index[place]])
        self._seen = len(log.index)

    def _key(self, index: int) -> tuple[str, str, int]:
        return self._trace.user[index], self._trace.model[index], int(self._trace.num_gpus[index])

    def fork(self, log: FinishLog) -> Self:
        """Return an independent copy that continues with an empty log after that one, as a forked loop does."""
        self._catch_up(log)
        twin = type(self)(self._trace)
        twin._sums = dict(self._sums)
        return twin
