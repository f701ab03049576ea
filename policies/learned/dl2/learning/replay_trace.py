"""The cluster's history as a trace, and as the workload of one attempt: jobs, cluster, and windows.

A job's duration in the trace is its run time at the size that it asked for (`JobRecord.requested_s`): by its measured speed in that
size, or without one its GPU seconds divided by that size, as if it scaled linearly. The replay itself uses the speeds of its
profiles for other sizes.

There are two traces with the same jobs, so that the same jobs are held back in both: the comparison has the limits of the jobs'
sizes, while in the training each job can run from one GPU on. There, the agent gives one worker after the other, and a job of
fixed size that gets fewer than it needs waits; in service a job's first task is its minimum (`slot_state`).

An episode of the environment is cut off after 100 slots for each of its jobs, so jobs that take longer than 100 slots are left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean

from policies.learned.dl2.learning.record import JobRecord
from policies.learned.dl2.slot_state import UNKNOWN_EPOCHS

HELD_BACK = 0.2
"""Share of a user's trace, its newest jobs, that trainings do not use: the windows of the comparison."""
FEWEST_WINDOWS = 5
FEWEST_JOBS = 250
"""Jobs of a history with which an attempt can be made: the part that is held back then has five windows of ten."""
_WINDOW, _WINDOWS = 10, 8
"""Minimum number of jobs of a window, and number of windows that larger windows should leave."""
_CUT = 1.1
"""Factor by which five or more windows may be smaller than asked for, because their number is rounded."""
_LEAST_S = 1.0
LONGEST_S = 100 * 1200.0
"""Seconds of 100 slots."""
COLUMNS = (
    "job_id",
    "submit_time_s",
    "num_gpus",
    "duration_s",
    "status",
    "model",
    "batch_size",
    "min_gpus",
    "max_gpus",
    "epochs",
    "num_ps",
)


@dataclass(frozen=True, slots=True)
class Replay:
    """The trace of a history."""

    csv: str
    """The trace of the comparison."""
    training_csv: str
    jobs: int
    left_out: int
    """Jobs that are too long for an episode."""
    window: int
    """Jobs of an episode of training, and of a window of the comparison."""
    at_once: float
    """Mean number of jobs that ran at once."""
    first_s: float
    """First submission, Unix time."""
    last_s: float
    """Last submission, Unix time."""


def replay_of(records: Sequence[JobRecord]) -> Replay:
    """Return the trace of these jobs. It may have none."""
    short = [record for record in records if record.requested_s <= LONGEST_S]
    if not short:
        return Replay("", "", 0, len(records), _WINDOW, 0.0, 0.0, 0.0)
    rows = sorted(short, key=lambda record: (record.submit_time_s, record.job_id))
    of_training = [replace(record, min_gpus=1) for record in rows]
    left_out = len(records) - len(rows)
    at_once = _at_once(rows)
    return Replay(
        _csv(rows),
        _csv(of_training),
        len(rows),
        left_out,
        window_of(len(rows), at_once),
        at_once,
        rows[0].submit_time_s,
        rows[-1].submit_time_s,
    )


def _csv(rows: Sequence[JobRecord]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, record in enumerate(rows):
        writer.writerow(_row(record, number, rows[0].submit_time_s))
    return text.getvalue()


def window_of(jobs: int, at_once: float) -> int:
    """Return the jobs of a window: four times those that run at once on average if that leaves enough windows, at least as many.

    A window begins on an empty cluster, so one with fewer jobs than run at once would not show the cluster's load.
    """
    most = int(jobs * HELD_BACK) // _WINDOWS
    return max(_WINDOW, ceil(_CUT * at_once), min(most, max(30, round(4 * at_once))))


def why_too_few(replay: Replay, left_out: str) -> str:
    """Return why the comparison would say nothing about the cluster, with the jobs that were left out; empty if it would."""
    if replay.jobs < FEWEST_JOBS:
        return f"{replay.jobs} jobs can be replayed; {FEWEST_JOBS} are needed ({left_out})"
    # As many windows as `simulator.training.data_sets.windows` makes.
    held_back = replay.jobs - round(replay.jobs * (1 - HELD_BACK))
    windows = round(held_back / replay.window)
    if windows >= FEWEST_WINDOWS:
        return ""
    needed = ceil(FEWEST_WINDOWS * replay.window / HELD_BACK)
    return (
        f"{replay.at_once:.0f} jobs ran at once on average, so a window has {replay.window} jobs at least, and the newest "
        f"{HELD_BACK:.0%} of {replay.jobs} jobs make {windows} windows; {FEWEST_WINDOWS} are needed, from some {needed} jobs "
        f"({left_out}; learn_jobs and learn_days limit the history)"
    )


def _at_once(rows: Sequence[JobRecord]) -> float:
    """Return the mean number of jobs that ran at once, up to the middle between the last arrival and the last end."""
    span_s = max(fmean((rows[-1].submit_time_s, max(row.finish_time_s for row in rows))) - rows[0].submit_time_s, 1.0)
    return sum(row.service_s for row in rows) / span_s


def _row(record: JobRecord, number: int, first_s: float) -> tuple[object, ...]:
    duration_s = max(record.requested_s, _LEAST_S)
    return (
        f"{number}-{record.job_id}",
        f"{record.submit_time_s - first_s:.3f}",
        record.num_gpus,
        f"{duration_s:.3f}",
        record.final_state,
        record.model,
        record.batch_size if record.batch_size > 0 else "",
        record.min_gpus,
        record.max_gpus,
        max(round(record.epochs or UNKNOWN_EPOCHS), 1),
        0,
    )
