"""The columns about single GPUs: the layouts of nodes, and which GPUs running jobs have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.model import IntColumn, MaskColumn
from policies.state.gpu_layout import MOST_GPUS, GpuLayout
from simulator.cluster.topology import Topology
from simulator.engine.view.measured_columns import HeldGpus
from simulator.kernel.constants import RUNNING
from simulator.kernel.job import ActiveJob

_MOST = 1 << MOST_GPUS


def layout_columns(topology: Topology) -> tuple[IntColumn, tuple[GpuLayout, ...]]:
    """Return the row of each node in the layouts (-1: it has too many GPUs for one), and the layouts."""
    rows: dict[GpuLayout, int] = {}
    column = np.full(topology.num_nodes, -1, dtype=np.int64)
    for node in range(topology.num_nodes):
        layout = topology.gpu_layout(node)
        if layout is not None:
            column[node] = rows.setdefault(layout, len(rows))
    return column, tuple(rows)


def mask_column(active: Sequence[ActiveJob], entries: int, gpus: HeldGpus | None) -> MaskColumn:
    """Return the masks of the running jobs' entries, in their order; 0 where GPUs are not followed, or a mask has too many."""
    if gpus is None:
        return np.zeros(entries, dtype=np.uint64)
    held = [(gpus.of(job.index), job.nodes) for job in active if job.state == RUNNING]
    masks = [masks[node] for masks, nodes in held for node in nodes]
    return np.array([mask if mask < _MOST else 0 for mask in masks], dtype=np.uint64)
