"""Notes on running jobs, from the states that decisions are made on, and the records of jobs that have ended."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from policies.api import Outcome
from policies.errors import TrainingError
from policies.learned.dl2.learning.record import JobRecord, few_sizes
from policies.model import ClusterState

_MOST = 20_000
"""Jobs with notes; beyond that those go that have not been seen for longest."""
_COMPLETED = "COMPLETED"
_FUTURE_S = 3600.0
"""Time by which clocks may differ: an end further ahead is refused."""


@dataclass(slots=True)
class _Note:
    """Facts about a job that has run."""

    submit_time_s: float
    num_gpus: int
    min_gpus: int
    max_gpus: int
    model: str = ""
    batch_size: int = -1
    epochs: float = 0.0
    size: int = 0
    """GPUs that it had when it was last seen."""
    service_s: float = 0.0
    """Its service then."""
    seconds: dict[int, float] = field(default_factory=dict)
    """Service by size, up to then. Bound: the sizes that the job has had."""
    progress: float = math.nan
    """Share of its training that it had made then, by its reported steps; NaN: none were reported yet."""
    shares: dict[int, float] = field(default_factory=dict)
    """The part of it by size. Bound: the same."""


class JobNotes:
    """Sizes that running jobs had, and for how long. Invariant: at most `_MOST` jobs have notes."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, _Note] = OrderedDict()
        """Bound: `_MOST`."""

    def __len__(self) -> int:
        return len(self._notes)

    def see(self, state: ClusterState) -> None:
        """Note the running jobs of a state. The service since the last state counts for the size that the job had then.

        A hypothetical state may leave running jobs out; that changes nothing in the notes on them.
        """
        jobs = state.jobs
        low, high = jobs.sizes
        for row in state.running.tolist():
            job_id = jobs.ids[row]
            begin, end = jobs.placement_offset[row : row + 2].tolist()
            size = int(jobs.placement_gpus[begin:end].sum())
            note = self._notes.get(job_id)
            submit_s, service_s = float(jobs.submit_time_s[row]), float(jobs.service_s[row])
            if note is None or note.submit_time_s != submit_s:
                asked = int(jobs.num_gpus[row])
                note = _Note(submit_s, asked, int(low[row]), int(high[row]))
                note.size = _mean_size(float(jobs.attained_gpu_s[row]), service_s, size)
                note.model, note.batch_size = _model_of(state, row, asked)
                note.epochs = _epochs_of(state, row)
                self._notes[job_id] = note
            self._notes.move_to_end(job_id)
            _spend(note, service_s)
            if jobs.progress is not None:
                _advance(note, float(jobs.progress[row]))
            note.size = size
        while len(self._notes) > _MOST:
            self._notes.popitem(last=False)

    def ended(self, outcome: Outcome, now_s: float) -> JobRecord | None:
        """Return the record of a job that has ended; None if it never ran. Raises TrainingError for an outcome that no job has."""
        if outcome.finish_time_s > now_s + _FUTURE_S:
            raise TrainingError(f"job {outcome.job_id[:64]!r}: it ended in the future")
        note = self._notes.pop(outcome.job_id, None)
        if outcome.service_s == 0:
            return None
        if note is None:
            note = _Note(outcome.submit_time_s, outcome.num_gpus, outcome.num_gpus, outcome.num_gpus)
            note.size = outcome.num_gpus
        _spend(note, outcome.service_s)
        if outcome.final_state == _COMPLETED and not math.isnan(note.progress):
            _advance(note, 1.0)
        seconds = few_sizes(note.seconds)
        return JobRecord(
            job_id=outcome.job_id,
            submit_time_s=note.submit_time_s,
            finish_time_s=outcome.finish_time_s,
            num_gpus=note.num_gpus,
            min_gpus=note.min_gpus,
            max_gpus=note.max_gpus,
            model=note.model,
            batch_size=note.batch_size,
            epochs=note.epochs,
            service_s=math.fsum(spent for _, spent in seconds),
            sizes=seconds,
            final_state=outcome.final_state,
            shares=few_sizes(note.shares),
        )


def _spend(note: _Note, service_s: float) -> None:
    """Count the service since the last state for the size of the job."""
    if service_s > note.service_s:
        note.seconds[note.size] = note.seconds.get(note.size, 0.0) + service_s - note.service_s
        note.service_s = service_s


def _advance(note: _Note, progress: float) -> None:
    """Count the training since the last state for the size of the job. Steps that are made again after a stop do not count."""
    if math.isnan(progress) or progress <= note.progress:
        return
    before = note.progress
    if math.isnan(before):
        # The first report has all steps so far. Of a job that had several sizes, it is not known in which it made them.
        before = 0.0 if len(note.seconds) <= 1 else progress
    gained = progress - before
    note.shares[note.size] = note.shares.get(note.size, 0.0) + gained
    note.progress = progress


def _mean_size(attained_gpu_s: float, service_s: float, size: int) -> int:
    """Return the mean number of GPUs of a job so far, for the time before it was first seen here."""
    if not service_s > 0:
        return size
    return max(round(min(attained_gpu_s / service_s, 1e6)), 1)


def _model_of(state: ClusterState, row: int, num_gpus: int) -> tuple[str, int]:
    """Return the job's model, and the examples of its step over all GPUs; '' and -1 where they are not known."""
    profiles = state.profiles
    if profiles is None or (at := int(profiles.of_job[row])) < 0:
        return "", -1
    name = profiles.models[at]
    model = name if len(name) <= 128 and name.isprintable() else ""
    batch = np.nan if profiles.job_batch_per_gpu is None else float(profiles.job_batch_per_gpu[row]) * num_gpus
    return model, round(batch) if math.isfinite(batch) and 1 <= batch < 1 << 62 else -1


def _epochs_of(state: ClusterState, row: int) -> float:
    """Return the epochs that the job's user states; 0 without."""
    if state.jobs.epochs is None or math.isnan(state.jobs.epochs[row]):
        return 0.0
    return float(state.jobs.epochs[row])
