"""Columns of a `ClusterState` from rows of Slurm's jobs and nodes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.profiles.current import Contention
from controller.profiles.racks import ONE_RACK, Racks
from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import NodeShare
from controller.state.ledger import Served
from policies.model import ClusterState, EstimateSource, Jobs, JobState, Nodes

STATIC = np.dtype(
    [
        ("submit_time_s", np.float64),
        ("start_time_s", np.float64),
        ("num_gpus", np.int64),
        ("split", np.int64),
        ("min_nodes", np.int64),
        ("max_nodes", np.int64),
        ("gpus_per_node", np.int64),
        ("cpus_per_gpu", np.float64),
        ("memory_mib_per_gpu", np.float64),
        ("exclusive", np.bool_),
        ("node_set", np.int64),
        ("duration_estimate_s", np.float64),
        ("duration_spread_s", np.float64),
        ("estimate_source", np.int64),
        ("user", np.int64),
        ("qos", np.int64),
        ("min_gpus", np.int64),
        ("max_gpus", np.int64),
        ("epochs", np.float64),
        ("steps", np.float64),
        ("cpus", np.float64),
        ("memory_mib", np.float64),
        ("nice", np.float64),
        ("eligible_time_s", np.float64),
    ]
)
"""Values that do not change while Slurm shows the same job; one row per job is kept as bytes and joined into columns. `epochs`
and `steps` are those that its user states; NaN: not stated. From `cpus` on they are what Slurm's order depends on: CPUs and memory
of the whole job, the nice value, and the time from which it may start (NaN: its submission)."""
STATIC_ROW = struct.Struct(
    "=" + "".join({"f": "d", "i": "q", "b": "?"}[STATIC[name].kind] for name in STATIC.names or ())
)
"""Packs one row of `STATIC`: several times faster than an assignment to an array, for each of 100,000 jobs at the first cycle."""
_MOST_OCCUPIED = (1 << 32) - 1
"""Messages have 32 bits for what foreign jobs occupy on a node. Tasks of a whole array may claim the same node."""
_OF_ORDER = ("cpus", "memory_mib", "nice", "eligible_time_s")


@dataclass(frozen=True)
class Rows:
    """Source of the job columns; entries at the same position belong to the same job."""

    ids: Sequence[str]
    statics: npt.NDArray[np.void]
    occupants: npt.NDArray[np.int64]
    """Positions of the jobs that have an allocation."""
    occupied: Sequence[Sequence[tuple[int, int, int]]]
    """Node, GPUs and mask of each share of these jobs."""
    estimates: Sequence[tuple[float, float] | None] | None
    """Run time from past runs and its spread, seconds; None for jobs without past runs, or if no job has any."""
    served: Sequence[Served | None] | None
    """Service that earlier runs of the same jobs attained."""
    users: tuple[str, ...]
    qos_names: tuple[str, ...] = ()
    preemptible: Sequence[bool] = ()
    """For each of `occupants`, True if it may be preempted; empty: none may."""
    measured: Sequence[Contention | None] = ()
    """Measured contention of each of `occupants`; empty: none was measured."""
    steps_done: Mapping[int, int] = field(default_factory=dict)
    """Optimizer steps that jobs with stated steps have done, by position; a job without an entry: not known."""


def build_state(
    *,
    sequence: int,
    time_s: float,
    nodes: Sequence[SlurmNode],
    foreign: Sequence[tuple[int, NodeShare]],
    rows: Rows,
    node_sets: Sequence[npt.NDArray[np.bool_]],
    racks: Racks = ONE_RACK,
) -> ClusterState:
    """Return the state in columns. A job counts as running when it has an allocation."""
    return ClusterState(
        sequence=sequence,
        time_s=time_s,
        nodes=_nodes(nodes, foreign, racks),
        jobs=_jobs(time_s, rows),
        node_sets=np.array(node_sets, dtype=np.bool_).reshape(len(node_sets), len(nodes)),
    )


def _nodes(nodes: Sequence[SlurmNode], foreign: Sequence[tuple[int, NodeShare]], racks: Racks) -> Nodes:
    used = np.zeros((3, len(nodes)), dtype=np.int64)
    for row, share in foreign:
        used[:, row] += (share.gpus, share.cpus, share.memory_mib)
    used = np.minimum(used, _MOST_OCCUPIED)
    names = tuple([node.name for node in nodes])
    return Nodes(
        names=names,
        gpus=np.array([node.gpus for node in nodes], dtype=np.int64),
        cpus=np.array([node.cpus for node in nodes], dtype=np.int64),
        memory_mib=np.array([node.memory_mib for node in nodes], dtype=np.int64),
        available=np.array([node.available for node in nodes], dtype=np.bool_),
        foreign_gpus=used[0],
        foreign_cpus=used[1],
        foreign_memory_mib=used[2],
        rack=racks.numbers(names),
        uplink_gbyte_s=racks.speeds(names),
    )


def _jobs(time_s: float, rows: Rows) -> Jobs:
    count = len(rows.ids)
    column: dict[str, npt.NDArray[Any]] = {name: np.array(rows.statics[name]) for name in STATIC.names or ()}
    entries = np.zeros(count, dtype=np.int64)
    entries[rows.occupants] = [len(placement) for placement in rows.occupied]
    offset = np.append(0, np.cumsum(entries))
    occupied = np.array([entry for placement in rows.occupied for entry in placement], dtype=np.uint64).reshape(-1, 3)
    column["service_s"] = np.nan_to_num(np.maximum(time_s - column["start_time_s"], 0.0))
    column["attained_gpu_s"] = column["service_s"] * column["num_gpus"]
    for row, before in enumerate(rows.served or ()):
        if before is not None:
            _add_earlier_runs(column, row, before)
    for row, estimate in enumerate(rows.estimates or ()):
        if estimate is not None:
            column["duration_estimate_s"][row], column["duration_spread_s"][row] = estimate
            column["estimate_source"][row] = EstimateSource.HISTORY
    for name in _OF_ORDER:
        del column[name]
    column |= _measured(rows)
    column |= _training(column, rows)
    if not (column["qos"] >= 0).any():  # no job has one
        del column["qos"]
    if np.array_equal(column["min_gpus"], column["max_gpus"]):  # no job is elastic
        del column["min_gpus"], column["max_gpus"]
    return Jobs(
        ids=tuple(rows.ids),
        state=np.where(entries > 0, JobState.RUNNING, JobState.PENDING).astype(np.int64),
        preemptible=_preemptible(rows),
        users=rows.users,
        qos_names=rows.qos_names if "qos" in column else None,
        placement_offset=offset,
        placement_node=occupied[:, 0].astype(np.int64),
        placement_gpus=occupied[:, 1].astype(np.int64),
        placement_gpu_mask=occupied[:, 2],
        **column,
    )


def _add_earlier_runs(column: Mapping[str, npt.NDArray[Any]], row: int, before: Served) -> None:
    """Add the usage of earlier runs. A time limit is that of one run: it is the estimate of all runs together until they have taken
    longer. From then on the estimate is the end of the present run, so that the remaining time is that until Slurm ends it."""
    column["submit_time_s"][row] = before.first_submit_s
    column["service_s"][row] += before.service_s
    column["attained_gpu_s"][row] += before.gpu_s
    is_limit = column["estimate_source"][row] == EstimateSource.TIME_LIMIT
    if is_limit and column["service_s"][row] >= column["duration_estimate_s"][row]:
        column["duration_estimate_s"][row] += before.service_s


def _preemptible(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return the column of preemptibility; it is False for waiting jobs."""
    column = np.zeros(len(rows.ids), dtype=np.bool_)
    if rows.preemptible:
        column[rows.occupants] = rows.preemptible
    return column


def _training(column: dict[str, npt.NDArray[Any]], rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of training, and remove what they are made of; empty if users have stated nothing."""
    epochs, steps = column.pop("epochs"), column.pop("steps")
    if np.isnan(epochs).all() and np.isnan(steps).all():
        return {}
    progress = np.full(len(rows.ids), np.nan)
    for row, done in rows.steps_done.items():
        progress[row] = min(done / steps[row], 1.0)
    return {"epochs": epochs, "progress": progress}


def _measured(rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of measurements; empty if there are none."""
    if not any(rows.measured):
        return {}
    sensitivity, confidence, throughput = (np.full(len(rows.ids), empty) for empty in (np.nan, 0.0, np.nan))
    for row, known in zip(rows.occupants.tolist(), rows.measured, strict=True):
        if known is not None:
            sensitivity[row], confidence[row] = known.value, known.confidence
            throughput[row] = known.window.steps_per_s
    return {
        "contention_sensitivity": sensitivity,
        "contention_confidence": confidence,
        "throughput_steps_per_s": throughput,
    }
