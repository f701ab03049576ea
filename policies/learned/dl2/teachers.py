"""Rules that the supervised phase imitates, as far as they follow from the state alone.

Each gives a **pair** (a worker and a server; a worker alone to a job without servers) to the first job of an order that can have
one, and chooses void if none can. Without the bundle action, a pair is given as a server and then a worker.

- `drf`: in order of the share of the dominant resource (the paper's teacher).
- `fifo`: in order of arrival, each job up to a number of workers.
- `srtf`: in order of the epochs left, each job up to that number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER, StateColumns, States

DRF, FIFO, SRTF = "drf", "fifo", "srtf"
TEACHERS = (DRF, FIFO, SRTF)
MOST_WORKERS = 4
"""Workers to which `fifo` and `srtf` let a job grow, unless another number is given: the largest request of the workload here."""

Masks = npt.NDArray[np.bool_]


def actions_of(
    teacher: str,
    columns: StateColumns,
    states: States,
    masks: Masks,
    *,
    bundle: bool = True,
    workers: int = MOST_WORKERS,
) -> npt.NDArray[np.int64]:
    """Return the teacher's action for each state of a batch. Ties go to the job that arrived first.

    `workers` is the number of workers to which `fifo` and `srtf` let a job grow.
    """
    kinds = masks[:, :-1].reshape(len(masks), columns.jobs, 3)
    if not bundle:
        return _parts_of(teacher, columns, states, kinds, workers)
    # A job that can have a worker but no server, while others can have servers, trains without servers. So do all jobs where none
    # has a server, and none can have one.
    alone = kinds[:, :, WORKER] & ~kinds[:, :, BOTH] & (states[:, :, columns.servers] == 0)
    ring_only = ~((states[:, :, columns.servers] > 0) | kinds[:, :, SERVER]).any(1, keepdims=True)
    can = kinds[:, :, BOTH] | (alone & (kinds[:, :, BOTH].any(1, keepdims=True) | ring_only))
    if teacher != DRF:
        can &= states[:, :, columns.workers] < workers
    order = np.where(can, _order(teacher, columns, states), np.inf)
    row = order.argmin(1)
    batch = np.arange(len(states))
    kind = np.where(kinds[batch, row, BOTH], BOTH, WORKER)
    found: npt.NDArray[np.int64] = np.where(can.any(1), 3 * row + kind, columns.actions - 1)
    return found


def _parts_of(teacher: str, columns: StateColumns, states: States, kinds: Masks, most: int) -> npt.NDArray[np.int64]:
    """Return the next part of the teacher's pair, where the actions of these kinds are possible and pairs are not."""
    workers, servers = states[:, :, columns.workers], states[:, :, columns.servers]
    # A job without servers can have a worker, and never a server.
    alone = kinds[:, :, WORKER] & ~kinds[:, :, SERVER] & (servers == 0) & kinds[:, :, SERVER].any(1, keepdims=True)
    kind = np.where((servers > workers) | alone, WORKER, SERVER)
    can = np.take_along_axis(kinds, kind[:, :, None], 2)[:, :, 0]
    if teacher != DRF:
        can &= workers < most
    row = np.where(can, _order(teacher, columns, states), np.inf).argmin(1)
    found: npt.NDArray[np.int64] = np.where(
        can.any(1), 3 * row + kind[np.arange(len(states)), row], columns.actions - 1
    )
    return found


def _order(teacher: str, columns: StateColumns, states: States) -> States:
    match teacher:
        case "drf":
            return states[:, :, columns.share]
        case "srtf":
            return states[:, :, columns.epochs]
    return np.broadcast_to(np.arange(columns.jobs, dtype=np.float32), states.shape[:2])
