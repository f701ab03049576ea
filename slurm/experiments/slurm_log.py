"""Times of events in slurmctld's log, which has milliseconds where `scontrol` has seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

_STAMP = r"\[(?P<time>[\d\-T:.]+)\] "
_SUBMITTED = re.compile(_STAMP + r"_slurm_rpc_submit_batch_job: JobId=(?P<job>\d+) ")
_STARTED = re.compile(_STAMP + r"sched(?:/backfill)?: (?:Allocate|_start_job: Started) JobId=(?P<job>\d+) ")
_ENDED = re.compile(_STAMP + r"_job_complete: JobId=(?P<job>\d+) done")


@dataclass(frozen=True, slots=True)
class Times:
    """Times of jobs by id, seconds since the Unix epoch; events that have not happened are missing."""

    submitted: Mapping[str, float]
    started: Mapping[str, float]
    """Times at which the jobs received their nodes."""
    ended: Mapping[str, float]


def times_of(text: str) -> Times:
    """Return the times in the text of a slurmctld.log."""
    return Times(_found(_SUBMITTED, text), _found(_STARTED, text), _found(_ENDED, text))


def _found(pattern: re.Pattern[str], text: str) -> dict[str, float]:
    return {match["job"]: datetime.fromisoformat(match["time"]).timestamp() for match in pattern.finditer(text)}
