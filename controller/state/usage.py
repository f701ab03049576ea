"""GPU time of users, and waits of their jobs, from the ended jobs of the journal."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from controller.state.typed_rows import well_typed

_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class EndedUse:
    """Ended jobs of one user."""

    jobs: int
    gpu_s: float
    """GPU seconds. No job counts more than its GPUs, on average, for the time from the beginning to its end."""


def read_ended_use(journal: Path, since_s: float) -> Mapping[str, EndedUse]:
    """Return the use by user of jobs that ended since then, and had GPUs. The journal is only read. Raises sqlite3.Error.

    Rows of earlier versions have the number of GPUs of the last run alone.
    """
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as db:
        rows = db.execute(
            "SELECT user, COUNT(*), TOTAL(IFNULL(gpu_s / service_s, num_gpus) * MAX(MIN(service_s, end_time_s - ?), 0.0))"
            " FROM run WHERE end_time_s >= ? AND service_s > 0 AND IFNULL(gpu_s, num_gpus) > 0 GROUP BY user",
            (since_s, since_s),
        ).fetchall()
    return {user: EndedUse(jobs, gpu_s) for user, jobs, gpu_s in well_typed(rows, "text", "number", "number")}


@dataclass(frozen=True, slots=True)
class EndedWaits:
    """Ended jobs of one user: their GPUs, and how long they waited for their last run. Both arrays are equally long.

    Bound: the jobs of one reading of the journal.
    """

    gpus: array[int] = field(default_factory=lambda: array("q"))
    past_waits_s: array[float] = field(default_factory=lambda: array("d"))


def read_ended_waits(journal: Path, since_s: float) -> Mapping[str, EndedWaits]:
    """Return the waits by user of jobs that ended since then, and ran on GPUs. The journal is only read. Raises sqlite3.Error."""
    found: dict[str, EndedWaits] = {}
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as db:
        rows = db.execute(
            "SELECT user, num_gpus, MAX(start_time_s - submit_time_s, 0.0) FROM run"
            " WHERE end_time_s >= ? AND service_s > 0 AND num_gpus > 0"
            # The start of a job that is cancelled while it waits is its end.
            " AND start_time_s < end_time_s",
            (since_s,),
        )
        for user, gpus, wait_s in well_typed(rows, "text", "number", "number"):
            of_user = found.setdefault(user, EndedWaits())
            of_user.gpus.append(int(gpus))
            of_user.past_waits_s.append(wait_s)
    return found
