"""The partition in which a waiting job of several partitions is placed. Pure functions of one observation.

Slurm tries each partition of a job. A policy sees one set of nodes for each job: those of the partition in which it fits now.
"""

from __future__ import annotations

from dataclasses import replace

from controller.cycle.room.capacity import Capacity, Need
from controller.cycle.room.occupancy import free_capacity, occupants_of
from controller.observe.observer import Observation
from policies.model import ClusterState

_IN_TURN_AFTER_S = 30.0
"""Wait of a job, seconds, after which the partitions in which it fits take turns, for as long each: the policy may keep the free
nodes of the first one for other jobs."""


def where_they_fit(observation: Observation) -> Observation:
    """Return the observation in which each waiting job of several partitions has the nodes of the first in which it fits now.

    A job that fits in none keeps those of its first partition.
    """
    several = {row: each for row, each in observation.by_partition.items() if len(each) > 1}
    rows = [row for row in observation.state.pending.tolist() if row in several] if several else []
    if not rows:
        return observation
    state, free = observation.state, free_capacity(observation, occupants_of(observation))
    node_set = state.jobs.node_set.copy()
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    for row in rows:
        sets = tuple(dict.fromkeys(node_set for _, node_set in several[row]))
        case = (sets, *_size(state, row))
        if case not in known:
            known[case] = _fitting(state, row, sets, free)
        if fitting := known[case]:
            node_set[row] = fitting[_turn(state, row) % len(fitting)]
    return replace(observation, state=replace(state, jobs=replace(state.jobs, node_set=node_set)))


def _size(state: ClusterState, row: int) -> tuple[object, ...]:
    jobs = state.jobs
    columns = (jobs.num_gpus, jobs.min_nodes, jobs.max_nodes, jobs.split, jobs.gpus_per_node, jobs.exclusive)
    return (*(column[row] for column in columns), jobs.cpus_per_gpu[row], jobs.memory_mib_per_gpu[row])


def _fitting(state: ClusterState, row: int, sets: tuple[int, ...], free: Capacity) -> tuple[int, ...]:
    """Return the node sets on which the job could start now."""
    needs = {node_set: Need.of(state, row, node_set) for node_set in sets}
    return tuple(found for found, need in needs.items() if free.place(need, free.usable(need)) is not None)


def _turn(state: ClusterState, row: int) -> int:
    """Return the number of the turn; 0 for a job that has not waited long."""
    waited_s = float(state.time_s - state.jobs.submit_time_s[row])
    return int(state.time_s // _IN_TURN_AFTER_S) if waited_s >= _IN_TURN_AFTER_S else 0
