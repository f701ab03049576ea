"""RL-TAPS' image of a `ClusterState`: what `headway/RlTaps-v0` shows, from a live cluster.

GPUs are numbered node by node. A running job is shown on the GPUs that it has; where the state does not say which, because neither
the policy nor Slurm names them, they are chosen here. Slots and GPUs follow from the state alone. In the environment a job keeps
its slot until it ends, and the agent has learned to give most jobs the GPU with the number of their slot. So a running job gets
the slot of one of its GPUs, where there is one: while the job stays there, it keeps this slot, and the agent need not move it. Of
a job whose GPUs are not known, any GPU of its nodes counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policies.learned.rl_taps.image_columns import ImageColumns
from policies.model import ClusterState, FloatColumn
from policies.state.gpu_layout import indices

Image = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def slots_of(state: ClusterState, count: int) -> list[int]:
    """Return the row of the job in each of `count` slots, -1 for none.

    The jobs are the first by submission; where more jobs are live than there are slots, running ones come first. Jobs with the
    fewest GPUs choose first among the slots of their GPUs; jobs that find none there get the first free slots.
    """
    chosen = [*state.running.tolist(), *state.pending.tolist()][:count]
    own = {row: parts for row in chosen if (parts := gpus_of(state, row))}
    rows, others = [-1] * count, [row for row in chosen if row not in own]
    for row in sorted(own, key=lambda row: (sum(gpus for _, gpus in own[row]), row)):
        candidates = (slot for may, _ in own[row] for slot in may[may < count].tolist())
        slot = next((slot for slot in candidates if rows[slot] < 0), -1)
        if slot < 0:
            others.append(row)
        else:
            rows[slot] = row
    for row in sorted(others):
        rows[rows.index(-1)] = row
    return rows


def owners_of(state: ClusterState, rows: Sequence[int]) -> Ints:
    """Return the slot of the job on each GPU, -1 for GPUs without a job in a slot.

    Of a node on which a job's GPUs are not known, it has the GPU with the number of its slot; its others are the last free ones.
    """
    owner = np.full(int(state.nodes.gpus.sum()), -1)
    held = [(slot, *part) for slot, row in enumerate(rows) if row >= 0 for part in gpus_of(state, row)]
    assumed = []
    for slot, may, count in held:
        if len(may) == count:
            owner[may] = slot
        else:
            assumed.append((slot, may, count))
    for slot, may, _ in assumed:
        if slot in may and owner[slot] < 0:
            owner[slot] = slot
    for slot, may, count in assumed:
        free = may[owner[may] < 0][::-1]
        owner[free[: count - np.count_nonzero(owner[may] == slot)]] = slot
    return owner


def gpus_of(state: ClusterState, row: int) -> list[tuple[Ints, int]]:
    """Return the GPUs of a job on each of its nodes: as many of these as the number says, all of the node's if it is not known
    which; empty for a job that waits."""
    jobs, nodes = state.jobs, state.nodes
    there = slice(*jobs.placement_offset[row : row + 2].tolist())
    columns = (jobs.placement_node[there], jobs.placement_gpus[there], jobs.placement_gpu_mask[there])
    found = []
    for node, count, mask in zip(*(column.tolist() for column in columns), strict=True):
        has, first = int(nodes.gpus[node]), int(nodes.gpus[:node].sum())
        is_known = mask.bit_count() == count and not mask >> has
        found.append((first + np.array(indices(mask) if is_known else range(has), dtype=np.int64), count))
    return found


def node_of_gpus(state: ClusterState) -> Ints:
    """Return the node of each GPU, numbered node by node."""
    return np.repeat(np.arange(len(state.nodes)), state.nodes.gpus)


def image_of(state: ClusterState, columns: ImageColumns, rows: Sequence[int], row_s: float) -> Image:
    """Return the image of a state whose slots have the jobs of these rows.

    A row of the image shows `row_s` seconds; a job whose duration is not known fills all rows. The
    time that a job has left on its GPUs is that on its requested GPUs, times their number over the number of its own, times its
    contention sensitivity as far as that is known.
    """
    left_s = left_of(state)
    image = np.zeros(columns.shape, dtype=np.uint8)
    owner = owners_of(state, rows)
    steps = np.append(_steps_of(state, rows, left_s / row_s), 0.0)[owner]
    depth = np.arange(columns.rows)[:, None]
    image[:, : columns.gpus] = (np.ceil(steps) > depth) * (owner + 1)
    for slot, row in enumerate(rows):
        if row >= 0:
            tall = int(np.clip(np.ceil(left_s[row] / row_s), 1, columns.rows))
            begin = columns.first_of_slots + slot * columns.widest
            image[:tall, begin : begin + min(int(state.jobs.num_gpus[row]), columns.widest)] = 1
    waiting = min(int(len(state.pending) + len(state.running)) - sum(row >= 0 for row in rows), columns.backlog)
    cells = np.arange(columns.rows * columns.of_backlog).reshape(columns.rows, -1)
    image[:, columns.first_of_backlog :] = cells < waiting
    return image


def _steps_of(state: ClusterState, rows: Sequence[int], left: FloatColumn) -> FloatColumn:
    """Return the rows that the job of each slot has left on its GPUs, 0 where none runs. `left` is that on requested GPUs."""
    jobs = state.jobs
    known = jobs.contention_sensitivity
    steps = np.zeros(len(rows))
    for slot, row in enumerate(rows):
        placement = None if row < 0 else jobs.placement(row)
        if placement is not None:
            slower = 1.0 if known is None else float(np.nan_to_num(known[row], nan=1.0))
            steps[slot] = left[row] * slower * jobs.num_gpus[row] / placement.num_gpus
    return steps


def left_of(state: ClusterState) -> FloatColumn:
    """Return the seconds that each job has left on its requested GPUs, more than 0; infinite where its duration is not known."""
    jobs = state.jobs
    count = len(jobs)
    done = np.full(count, np.nan) if jobs.progress is None else jobs.progress
    whole = jobs.duration_estimate_s
    left = np.where(np.isnan(done), whole - jobs.service_s, whole * (1.0 - done))
    found: FloatColumn = np.where(np.isnan(left), np.inf, np.maximum(left, 1.0))
    return found
