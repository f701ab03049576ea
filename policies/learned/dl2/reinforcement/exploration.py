"""Job-aware exploration (section 4.3 of the paper).

A state is **poor** if a job has

1. several workers but no parameter server: it should get a server;
2. several servers but no worker: it should get a worker;
3. numbers of workers and servers of which one is more than `ratio` times the other: it should get the one that it has less of.

In a poor state, the action of the policy is replaced by that of the first such job with probability `epsilon`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.state_columns import SERVER, WORKER, StateColumns, States

_SEVERAL = 2


def mended(columns: StateColumns, states: States, masks: npt.NDArray[np.bool_], ratio: float) -> npt.NDArray[np.int64]:
    """Return for each state the action that mends its first poor job, -1 where there is none that can be mended."""
    kinds = masks[:, :-1].reshape(len(masks), columns.jobs, 3)
    workers, servers = states[:, :, columns.workers], states[:, :, columns.servers]
    lacks_server = ((workers >= _SEVERAL) & (servers == 0)) | ((servers > 0) & (workers > ratio * servers))
    lacks_worker = ((servers >= _SEVERAL) & (workers == 0)) | ((workers > 0) & (servers > ratio * workers))
    server, worker = lacks_server & kinds[:, :, SERVER], lacks_worker & kinds[:, :, WORKER]
    poor = server | worker
    row = poor.argmax(1)
    kind = np.where(server[np.arange(len(states)), row], SERVER, WORKER)
    found: npt.NDArray[np.int64] = np.where(poor.any(1), 3 * row + kind, -1)
    return found


def explored(
    actions: npt.NDArray[np.int64], instead: npt.NDArray[np.int64], epsilon: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Replace actions by those of `instead`, where there is one, with that probability."""
    replaces = (instead >= 0) & (rng.random(len(actions)) < epsilon)
    found: npt.NDArray[np.int64] = np.where(replaces, instead, actions)
    return found
