"""RL-TAPS' image of a `ClusterState`: what `headway/RlTaps-v0` shows, from a live cluster.

The agent names GPUs, and decisions name nodes. So GPUs are numbered node by node, and those of a job on a node are any: as far as
possible those that the agent gave it before. Jobs wait for a slot in order of submission and keep it until they end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.rl_taps.image_columns import ImageColumns
from policies.model import ClusterState, FloatColumn

Image = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class Slots:
    """The job of each slot, and the GPUs that the agent gave to it. Invariant: a job is in one slot at most."""

    def __init__(self, count: int) -> None:
        self._jobs: list[str | None] = [None] * count
        self._given: dict[str, Ints] = {}

    def copy(self) -> Slots:
        """Return an independent copy."""
        twin = Slots(0)
        twin._jobs, twin._given = self._jobs.copy(), self._given.copy()
        return twin

    def fill(self, state: ClusterState) -> list[int]:
        """Remove jobs that have ended, let others follow (running ones first); return the row of each slot's job, -1 for none."""
        rows = {name: row for row, name in enumerate(state.jobs.ids)}
        self._jobs = [name if name in rows else None for name in self._jobs]
        there = {name for name in self._jobs if name is not None}
        queue = [
            name
            for row in (*state.running.tolist(), *state.pending.tolist())
            if (name := state.jobs.ids[row]) not in there
        ]
        for slot, name in enumerate(self._jobs):
            if name is None and queue:
                self._jobs[slot] = queue.pop(0)
        self._given = {name: gpus for name, gpus in self._given.items() if name in rows}
        return [-1 if name is None else rows[name] for name in self._jobs]

    def note(self, action: Ints) -> None:
        """Remember the GPUs that the agent gave to each slot (GPUs, slots from 1 on)."""
        for slot, name in enumerate(self._jobs):
            if name is not None:
                self._given[name] = np.flatnonzero(action == slot + 1)

    def gpus_of(self, slot: int) -> Ints:
        """Return the GPUs that the agent gave to the job of that slot last."""
        return self._given.get(self._jobs[slot] or "", np.zeros(0, dtype=np.int64))


def node_of_gpus(state: ClusterState) -> Ints:
    """Return the node of each GPU, numbered node by node."""
    return np.repeat(np.arange(len(state.nodes)), state.nodes.gpus)


def image_of(state: ClusterState, columns: ImageColumns, slots: Slots, rows: list[int], row_s: float) -> Image:
    """Return the image. A row shows `row_s` seconds; a job whose duration is not known fills all rows.

    The time that a job has left on its GPUs is that on its requested GPUs, times their number over the number of its own, times
    its contention sensitivity as far as that is known.
    """
    jobs = state.jobs
    left_s = left_of(state)
    image = np.zeros(columns.shape, dtype=np.uint8)
    owner, steps = np.full(columns.gpus, -1), np.zeros(columns.gpus)
    node = node_of_gpus(state)
    # Jobs in slots first: they keep the GPUs that the agent knows.
    for slot, row in enumerate(rows):
        placement = None if row < 0 else jobs.placement(row)
        if placement is None:
            continue
        known = slots.gpus_of(slot)
        slower = (
            1.0
            if jobs.contention_sensitivity is None
            else float(np.nan_to_num(jobs.contention_sensitivity[row], nan=1.0))
        )
        for where, count in placement.items():
            free = np.flatnonzero((node == where) & (owner < 0))
            mine = np.concatenate([free[np.isin(free, known)], free[~np.isin(free, known)]])[:count]
            owner[mine] = slot
            steps[mine] = left_s[row] * slower * jobs.num_gpus[row] / placement.num_gpus / row_s
    depth = np.arange(columns.rows)[:, None]
    image[:, : columns.gpus] = (np.ceil(steps) > depth) * (owner + 1)
    for slot, row in enumerate(rows):
        if row >= 0:
            tall = int(np.clip(np.ceil(left_s[row] / row_s), 1, columns.rows))
            begin = columns.first_of_slots + slot * columns.widest
            image[:tall, begin : begin + min(int(jobs.num_gpus[row]), columns.widest)] = 1
    waiting = min(int(len(state.pending) + len(state.running)) - sum(row >= 0 for row in rows), columns.backlog)
    cells = np.arange(columns.rows * columns.of_backlog).reshape(columns.rows, -1)
    image[:, columns.first_of_backlog :] = cells < waiting
    return image


def left_of(state: ClusterState) -> FloatColumn:
    """Return the seconds that each job has left on its requested GPUs, more than 0; infinite where its duration is not known."""
    jobs = state.jobs
    count = len(jobs)
    done = np.full(count, np.nan) if jobs.progress is None else jobs.progress
    whole = jobs.duration_estimate_s
    left = np.where(np.isnan(done), whole - jobs.service_s, whole * (1.0 - done))
    found: FloatColumn = np.where(np.isnan(left), np.inf, np.maximum(left, 1.0))
    return found
