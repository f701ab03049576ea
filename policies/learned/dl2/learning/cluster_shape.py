"""The nodes of the cluster, as the TOML file that the simulator reads (`simulator/cluster/cluster.py`)."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from policies.model import ClusterState


def shape_of(state: ClusterState) -> str:
    """Return the text of the file: all nodes that have GPUs, also those that are not available now; empty if none has.

    Nodes of different racks get the simulator's default links, except where the state has the speeds of the nodes' NICs.
    """
    nodes = state.nodes
    rows = [
        (int(gpus), int(rack)) for gpus, rack in zip(nodes.gpus.tolist(), nodes.rack.tolist(), strict=True) if gpus > 0
    ]
    if not rows:
        return ""
    blocks = []
    for (gpus, rack), members in groupby(sorted(rows, key=lambda row: (row[1], row[0]))):
        blocks.append(f'[[nodes]]\ncount = {len(list(members))}\ngpus = {gpus}\nrack = "{rack}"\n')
    links = nodes.nic_gbyte_s
    if links is not None and np.isfinite(links).any():
        blocks.append(f"[network]\nnic_gbs = {float(np.nanmin(links)):.6g}\n")
    return "\n".join(blocks)
