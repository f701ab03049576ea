"""The waiting jobs in order of submission."""

from __future__ import annotations

from operator import attrgetter

from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop

_BY_INDEX = attrgetter("index")


def first_waiting(loop: Loop, most: int) -> list[ActiveJob]:
    """Return the first `most` waiting jobs by submission. Only for a loop whose own order is that of arrival."""
    jobs: list[ActiveJob] = []
    for queue in loop.queues:
        jobs += queue[:most]
    jobs.sort(key=_BY_INDEX)
    return jobs[:most]
