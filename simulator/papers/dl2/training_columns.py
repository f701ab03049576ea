"""Parameter servers, epochs and progress of a slot's jobs, as columns of `policies.model.Jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.progress import EpochProgress
from simulator.papers.dl2.servers import Footprints


def training_columns(
    jobs: Sequence[ActiveJob], progress: EpochProgress, footprints: Footprints
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns for a state of these jobs; those of servers are left out where every job trains by all-reduce."""
    epochs = np.array([progress.epochs(job) for job in jobs], dtype=np.float64)
    left = np.array([progress.epochs_left(job) for job in jobs], dtype=np.float64)
    columns: dict[str, npt.NDArray[Any]] = {}
    if jobs:
        columns |= {"epochs": epochs, "progress": (1.0 - left / epochs).clip(0.0, 1.0)}
    requested = np.array([footprints.asked[job.index] for job in jobs], dtype=np.int64)
    if requested.any():
        present = [sorted(footprints.of.get(job.index, {}).items()) if job.occupied else [] for job in jobs]
        entries = np.array([entry for servers in present for entry in servers], dtype=np.int64).reshape(-1, 2)
        columns |= {
            "num_servers": requested,
            "server_offset": np.cumsum([0, *map(len, present)]).astype(np.int64),
            "server_node": entries[:, 0],
            "server_count": entries[:, 1],
        }
    return columns
