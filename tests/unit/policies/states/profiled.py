"""Small clusters with a network, whose jobs communicate a lot, communicate little, or have no profile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from policies.model import ClusterState, ProfileTable
from tests.unit.policies.states.cluster import Job, Node, cluster

LOUD, QUIET, UNKNOWN = 0, 1, -1
"""Rows of profiles: one that communicates for most of its time, one that hardly does, and none."""


def state_of(
    nodes: Sequence[Node], jobs: Sequence[tuple[Job, int]], *, rack: Sequence[int] | None = None, time_s: float = 1000.0
) -> ClusterState:
    """Jobs, each with the row of its profile; NICs of 10 GB/s, uplinks of 5. Running jobs have run since 500 s."""
    state = cluster(nodes, [job for job, _ in jobs], time_s=time_s)
    nothing = np.full(2, math.nan)
    profiles = ProfileTable(
        models=("loud", "quiet"),
        of_job=np.array([model for _, model in jobs], dtype=np.int64),
        locality=np.full((2, 4), math.nan),
        bytes_per_step=np.array([1e10, 1e6]),
        compute_s=np.array([0.2, 1.0]),
        cpu_cores=nothing,
        pcie_gbyte_s=nothing,
    )
    linked = dataclasses.replace(
        state.nodes,
        rack=np.array(rack if rack is not None else [0] * len(nodes)),
        nic_gbyte_s=np.full(len(nodes), 10.0),
        uplink_gbyte_s=np.full(len(nodes), 5.0),
    )
    return dataclasses.replace(state, nodes=linked, profiles=profiles)
