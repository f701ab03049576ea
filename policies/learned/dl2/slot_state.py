"""DL2's state and actions for the elastic jobs of a `ClusterState`: what `headway/ElasticAllocation-v0` shows, from a live cluster.

All-reduce jobs only, as in section 7 of the paper: the columns of servers are 0, and the actions that give one are masked. A job's
first task is its minimum of GPUs, and each further one is a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.state_columns import WORKER, StateColumns, States
from policies.model import ClusterState, FloatColumn

MODELS = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification", "dssm", "wlm")
"""The models that a state distinguishes, those of the paper's table 1; a job of another model has no type."""
UNKNOWN_EPOCHS = 100.0
"""Epochs of jobs whose users state none, as in the environment."""
_MOST = 1e6

Mask = npt.NDArray[np.bool_]


class SlotState:
    """Sizes that the jobs of one batch have in this slot, and the state that shows them.

    Invariant: `free` is what the sizes leave of the GPUs.

    Bound: lives for one slot.
    """

    def __init__(
        self, state: ClusterState, columns: StateColumns, slot_s: float, least: Sequence[int], most: Sequence[int]
    ) -> None:
        """`least` and `most`: limits of each job of the state, GPUs."""
        jobs = state.jobs
        self.sizes: dict[int, int] = {}
        """GPUs of each job that has some in this slot, by row of the cluster state."""
        self.free = 0
        self._columns = columns
        self._least, self._most = least, most
        self._all_gpus = max(int(state.nodes.gpus.sum()), 1)
        self._types = _types(state, columns.types)
        self._slots = np.minimum(jobs.service_s / slot_s, _MOST)
        self._epochs_left = np.minimum(epochs_left(state), _MOST)

    def show(self, batch: Sequence[int]) -> tuple[States, Mask]:
        """Return state and mask for these jobs (rows of the cluster state, at most J)."""
        columns = self._columns
        seen = np.zeros(columns.shape, dtype=np.float32)
        mask = np.zeros(columns.actions, dtype=np.bool_)
        for place, row in enumerate(batch):
            size = self.sizes.get(row, 0)
            if self._types[row] >= 0:
                seen[place, self._types[row]] = 1.0
            seen[place, columns.types] = self._slots[row]
            seen[place, columns.epochs] = self._epochs_left[row]
            seen[place, columns.share] = size / self._all_gpus
            seen[place, columns.workers] = size
            mask[3 * place + WORKER] = size + self._task(row) <= self._most[row] and self._task(row) <= self.free
        mask[-1] = True
        return seen, mask

    def give(self, row: int) -> None:
        """Give that job its next task. The mask allows it."""
        task = self._task(row)
        self.sizes[row] = self.sizes.get(row, 0) + task
        self.free -= task

    def _task(self, row: int) -> int:
        return 1 if row in self.sizes else self._least[row]


def epochs_left(state: ClusterState) -> FloatColumn:
    """Return the epochs left of each job. Without progress, the estimated share of its run time that is left takes its place."""
    jobs = state.jobs
    count = len(jobs)
    epochs = np.full(count, np.nan) if jobs.epochs is None else jobs.epochs
    done = np.full(count, np.nan) if jobs.progress is None else jobs.progress
    with np.errstate(divide="ignore", invalid="ignore"):
        by_time = np.clip(jobs.service_s / jobs.duration_estimate_s, 0.0, 1.0)
    done = np.where(np.isnan(done), np.nan_to_num(by_time, nan=0.0), done)
    left: FloatColumn = np.where(np.isnan(epochs), UNKNOWN_EPOCHS, epochs) * (1.0 - done)
    return left


def _types(state: ClusterState, types: int) -> list[int]:
    """Return the place of each job's model in MODELS, or -1."""
    profiles = state.profiles
    if profiles is None:
        return [-1] * len(state.jobs)
    known = {name: place for place, name in enumerate(MODELS[:types])}
    of_model = [known.get(name.casefold(), -1) for name in profiles.models]
    return [of_model[row] if row >= 0 else -1 for row in profiles.of_job.tolist()]
