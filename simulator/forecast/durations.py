"""Run times of jobs that have not ended, drawn from those of jobs that have.

A job's run time is a mixture over ever larger sets of ended jobs: those of its kind, of its group, of about its size, all. The
smaller a set, the more of the weight goes to the next. What a running job has served already conditions the draw: each set counts
as much as the share of its jobs that ran longer. A last, heavy-tailed component has no longest run time, so that a job that has
outrun all others still has a future: the longer it has run, the longer it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.forecast.queue import PastJobs, QueueJobs

LONGEST_S = 90 * 86400.0
_NEWEST = 4000
"""Number of ended jobs that are used, the last ones."""
_HALF = (4.0, 20.0, 60.0, 0.0)
"""Number of jobs in each set at which it gets half of the weight that smaller sets leave."""
_TAIL = 0.03
"""Share of the weight that the heavy tail has for a job that has not run."""
_SAME_DRAW = 0.25
"""Probability that a job takes the common draw of its kind in a sample: jobs of one kind are long or short together."""
_DEFAULT_S = 3600.0
"""Median run time where no job has ended."""

_Span = tuple[IntColumn, IntColumn, IntColumn]
Mixture = tuple[list[_Span], FloatColumn]
"""For each job its part of each set, and the weights of the sets, added up."""


@dataclass(frozen=True, eq=False)
class _Level:
    """Run times of one partition of the ended jobs: sorted within each set, and `key` rises over all."""

    key: FloatColumn
    duration_s: FloatColumn

    @classmethod
    def of(cls, code: IntColumn, duration_s: FloatColumn) -> _Level:
        known = code >= 0
        code, duration_s = code[known], duration_s[known]
        key = code + np.minimum(duration_s / LONGEST_S, 1.0) * 0.5
        order = np.argsort(key, kind="stable")
        return cls(key[order], duration_s[order])

    def span(self, code: IntColumn, service_s: FloatColumn) -> _Span:
        """Return for each job where its set begins, where the jobs begin that ran longer, and where the set ends."""
        begin = np.searchsorted(self.key, code, side="left")
        longer = np.searchsorted(self.key, code + np.minimum(service_s / LONGEST_S, 1.0) * 0.5, side="right")
        end = np.searchsorted(self.key, code + 0.75, side="left")
        return begin, np.minimum(np.where(service_s > 0, longer, begin), end), end


class Durations:
    """Run times of ended jobs, from which those of present jobs are drawn."""

    def __init__(self, past: PastJobs) -> None:
        """Take the newest ended jobs."""
        ended = np.flatnonzero(~np.isnan(past.duration_s))
        if len(ended) > _NEWEST:
            ended = ended[np.argpartition(past.end_s[ended], -_NEWEST)[-_NEWEST:]]
        duration_s = past.duration_s[ended]
        codes = (
            past.kind[ended],
            past.group[ended],
            size_class(past.gpus[ended]),
            np.zeros(len(ended), dtype=np.int64),
        )
        self._levels = [_Level.of(code, duration_s) for code in codes]
        self._median_s = float(np.median(duration_s)) if len(ended) else _DEFAULT_S

    def draw(
        self, jobs: QueueJobs, samples: int, rng: np.random.Generator, mixture: Mixture | None = None
    ) -> FloatColumn:
        """Return a whole run time for each sample and job, seconds; more than the job has served, at most until its run ends
        at its limit. `mixture` is that of the jobs; None: it is not known yet."""
        rows = len(jobs)
        service_s = jobs.service_s
        spans, total = mixture or self.mixture(jobs)
        which = (rng.random((samples, rows))[None] > total[:-1, None, :]).sum(axis=0)
        uniform = self._uniform(jobs, samples, rng)
        found = (service_s + self._median_s) / np.maximum(1.0 - uniform, 1e-4) - self._median_s
        for number, (level, (_, longer, end)) in enumerate(zip(self._levels, spans, strict=True)):
            here = which == number
            if here.any():
                place = np.minimum((longer + uniform * (end - longer)).astype(np.int64), len(level.duration_s) - 1)
                found = np.where(here, level.duration_s[place], found)
        limit_s = jobs.limit_s if jobs.earlier_s is None else jobs.limit_s + jobs.earlier_s
        longest_s = np.where(np.isnan(limit_s), LONGEST_S, limit_s)
        return np.maximum(np.minimum(found, longest_s), service_s + 1.0)

    def mixture(self, jobs: QueueJobs) -> Mixture:
        """Return the mixtures from which the run times of these jobs are drawn, for repeated draws."""
        codes = (jobs.kind, jobs.group, size_class(jobs.gpus), np.zeros(len(jobs), dtype=np.int64))
        spans = [level.span(code, jobs.service_s) for level, code in zip(self._levels, codes, strict=True)]
        return spans, np.cumsum(_weights(spans, jobs.service_s, self._median_s), axis=0)

    @staticmethod
    def _uniform(jobs: QueueJobs, samples: int, rng: np.random.Generator) -> FloatColumn:
        own = rng.random((samples, len(jobs)))
        kinds, of = np.unique(jobs.kind, return_inverse=True)
        common = rng.random((samples, len(kinds)))[:, of]
        same = (rng.random((samples, len(jobs))) < _SAME_DRAW) & (jobs.kind >= 0)
        return np.where(same, common, own)


def _weights(spans: list[_Span], service_s: FloatColumn, median_s: float) -> FloatColumn:
    """Return the weight of each set, and of the tail, for each job: a row for each set; they add up to 1 for each job."""
    left = np.full(len(service_s), 1.0 - _TAIL)
    weight = np.zeros((len(spans) + 1, len(service_s)))
    for number, (begin, longer, end) in enumerate(spans):
        count = end - begin
        share = np.where(count > 0, count / (count + _HALF[number] + 1e-9), 0.0)
        weight[number] = left * share * (end - longer) / np.maximum(count, 1)
        left = left * (1.0 - share)
    weight[-1] = (_TAIL + left) * median_s / (median_s + service_s)
    return np.asarray(weight / weight.sum(axis=0))


def size_class(gpus: IntColumn) -> IntColumn:
    """Return the class of each job by its GPUs: 1, 2 to 4, 5 to 8, 9 to 32, more."""
    return np.searchsorted(np.array([1, 4, 8, 32]), gpus, side="left").astype(np.int64)
