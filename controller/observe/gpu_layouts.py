"""The GPUs inside nodes, for policies that choose them: the site's file of the cluster, and which GPUs foreign jobs have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import structlog

from controller.base.errors import ConfigurationError
from controller.slurm.model.job import NodeShare
from policies.model import ClusterState
from policies.state.gpu_layout import GpuLayout

log = structlog.get_logger(__name__)

Layouts = Mapping[str, GpuLayout]
"""Layouts by the name of the node."""


def read_layouts(path: Path | None) -> Layouts:
    """Return the layouts of the nodes in that file; empty without one. Raises ConfigurationError that names file, key and mend."""
    if path is None:
        return {}
    from simulator.cluster.cluster import read_cluster
    from simulator.errors import ClusterError

    try:
        cluster = read_cluster(path)
    except ClusterError as error:
        raise ConfigurationError(f"cluster_file: {error}") from error
    found = {name: cluster.topology.gpu_layout(node) for node, name in enumerate(cluster.names)}
    log.info("gpu_layouts_known", nodes=len(found), kinds=len(set(found.values())))
    return {name: layout for name, layout in found.items() if layout is not None}


def with_gpu_layouts(state: ClusterState, layouts: Layouts, foreign: Sequence[tuple[int, NodeShare]]) -> ClusterState:
    """Return the state with layouts and the GPUs of foreign jobs; the same one where no layout is known.

    A node whose number of GPUs in Slurm is not that of its layout has none. `foreign`: node and share of each foreign job.
    """
    if not layouts:
        return state
    nodes = state.nodes
    rows: dict[GpuLayout, int] = {}
    column = np.full(len(nodes), -1, dtype=np.int64)
    for node, (name, gpus) in enumerate(zip(nodes.names, nodes.gpus.tolist(), strict=True)):
        layout = layouts.get(name)
        if layout is not None and layout.num_gpus == gpus:
            column[node] = rows.setdefault(layout, len(rows))
    masks = np.zeros(len(nodes), dtype=np.uint64)
    for node, share in foreign:
        masks[node] |= np.uint64(share.gpu_mask)
    return replace(state, nodes=replace(nodes, gpu_layout=column, foreign_gpu_mask=masks), gpu_layouts=tuple(rows))
