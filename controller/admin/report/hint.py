"""One sentence for the user of a job of which something was wasted: what, and what to do. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from controller.admin.report.sources import Sources
from controller.base.text import duration
from controller.slurm.model.job import Phase
from protos.headway.v1 import admin_pb2

_IDLE_SHARE = 0.2
"""Share of idle GPU time from which on it is worth a hint: less is often the start and the end of a job."""
_LOSS = 0.2
_LIMIT_FACTOR = 4.0
_LONG_S = 3600.0
"""Shortest time limit that is worth a hint, in seconds."""
_NO_LIMIT_S = 365 * 86_400.0
"""Time limit that Slurm records for a started job without one, in seconds."""


def hint_of(message: admin_pb2.JobSummary, found: Sources) -> str:
    """Return the first hint that applies, the most costly kind first; empty when none does."""
    return next(_hints(message, found), "")


def _hints(message: admin_pb2.JobSummary, found: Sources) -> Iterator[str]:
    speed = found.speed
    if speed is not None and speed.idle_share >= _IDLE_SHARE:
        yield (
            f"no process of it was on its GPUs for {speed.idle_share:.0%} of their time: ask for as many GPUs as the script "
            "uses, and check that every rank has one of its own"
        )
    if any("lost" in stop.problem for stop in message.stops):
        yield (
            "work was lost when it was stopped: with headway_job.checkpoint (docs/checkpoints.md) it is saved before each stop"
        )
    if speed is not None and speed.loss is not None and speed.loss >= _LOSS:
        yield (
            f"it lost {speed.loss:.0%} of its speed to jobs beside it: with --exclusive it shares no node; operators can let "
            'Headway move such jobs (preemption = "automatic")'
        )
    limit_s = None if found.job is None else found.job.time_limit_s
    ended = found.job is not None and found.job.phase is Phase.ENDED
    if ended and limit_s is not None and limit_s >= _LONG_S and limit_s > _LIMIT_FACTOR * message.service_s > 0:
        had, wanted = f"its time limit was {duration(limit_s)}", "a shorter --time"
        if limit_s >= _NO_LIMIT_S:
            had, wanted = "it had no time limit", "a --time"
        yield f"{had} and it ran for {duration(message.service_s)}: with {wanted}, jobs can start in gaps before others"
