"""Throttles of job arrays (--array=0-99%3): how many waiting tasks policies see. Pure functions of one snapshot.

Slurm starts no more tasks than the throttle allows, and keeps no nodes for the others. So Headway places no more of them either: a
task beyond the throttle would be bound to GPUs on which it cannot start, and other jobs would wait for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from controller.observe.columns import STATIC, STATIC_ROW
from controller.observe.job_row import JobRow
from controller.observe.role import Obstacle, Role, Standing
from controller.slurm.model.job import JobKey, Phase, SlurmJob

_TIMES = frozenset({"submit_time_s", "start_time_s", "eligible_time_s"})
_REQUEST = itemgetter(*(place for place, name in enumerate(STATIC.names or ()) if name not in _TIMES))
"""Values of a row without times: a requeued task has another submit time, and asks for the same."""


def rooms(jobs: Sequence[SlurmJob], standings: Mapping[JobKey, Standing]) -> dict[int, int]:
    """Return the number of further tasks that each array with a throttle may start, by the number of the array.

    Tasks that run, and those that are placed and about to start, count against the throttle. So does one that was just requeued:
    otherwise a task that is moved would lose its turn to another one.
    """
    throttles = {job.array_job_id: job.array_throttle for job in jobs if job.array_throttle and job.array_job_id}
    if not throttles:
        return {}
    busy = Counter(job.array_job_id for job in jobs if job.array_job_id in throttles and _counts(job, standings))
    return {array: max(throttle - busy[array], 0) for array, throttle in throttles.items()}


def beyond_throttle(waiting: Iterable[JobRow], room_of: Mapping[int, int]) -> dict[JobKey, Standing]:
    """Return the standings of the tasks that policies do not see. `waiting`: in order of submission.

    Of tasks that differ in nothing, the first come first. Tasks that their user has changed since are counted apart, so that one
    which fits nowhere does not keep the others waiting; the plan is cut to the throttle (`Plan.within`).
    """
    shown: Counter[tuple[object, ...]] = Counter()
    found: dict[JobKey, Standing] = {}
    for row in waiting:
        array = row.job.array_job_id
        room = None if array is None else room_of.get(array)
        if room is None:
            continue
        kind = (array, _kind(row.static), row.partitions)
        shown[kind] += 1
        if shown[kind] > room:
            found[row.key] = _BEYOND
    return found


_BEYOND = Standing(
    Role.INELIGIBLE,
    "as many tasks of its array run, or are about to, as its user allows at once",
    Obstacle.ARRAY_THROTTLE,
)


def _counts(job: SlurmJob, standings: Mapping[JobKey, Standing]) -> bool:
    if job.phase is Phase.COMPLETING:
        # It counts no more for Slurm, however long its epilog takes (measured on 22.05). One that ends its first run has not been
        # requeued; another may have been.
        return job.restarts > 0
    if job.phase.occupies_nodes:
        return True
    found = standings.get(job.key)
    return found is not None and (found.role is Role.STARTING or found.obstacle is Obstacle.SETTLING)


@lru_cache(maxsize=1024)
def _kind(static: bytes) -> tuple[object, ...]:
    return tuple(map(str, _REQUEST(STATIC_ROW.unpack(static))))  # as text: NaN is not equal to itself
