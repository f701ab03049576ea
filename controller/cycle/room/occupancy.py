"""Jobs on the nodes, with their resources, and what they leave free. Pure functions of one observation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.base.apart import apart
from controller.cycle.room.capacity import Capacity, OnNode
from controller.observe.observer import Observation
from controller.slurm.model.job import SlurmJob

Occupant = tuple[SlurmJob, tuple[OnNode, ...]]
"""A job, and its resources on each managed node."""


def occupants_of(observation: Observation) -> list[Occupant]:
    """Return the jobs that occupy managed nodes, also those that Headway does not schedule."""
    index = {name: node for node, name in enumerate(observation.state.nodes.names)}
    found = []
    for job in observation.snapshot.jobs:
        if job.phase.occupies_nodes:
            with apart("nodes of jobs", job.key.job_id):
                shares = tuple(
                    OnNode(index[share.node], share.gpus, float(share.cpus), float(share.memory_mib))
                    for share in job.allocated
                    if share.node in index
                )
                if shares:
                    found.append((job, shares))
    return found


def free_capacity(observation: Observation, occupants: Iterable[Occupant]) -> Capacity:
    """Return the resources beside these jobs, and beside those that are about to start."""
    count = len(observation.state.nodes)
    jobs, sealed = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for job, shares in occupants:
        nodes = [share.node for share in shares]
        jobs[nodes] += 1
        sealed[nodes] += job.exclusive
    return Capacity.of(observation.state, jobs, sealed)
