"""Columns of a `ClusterState` from rows of Slurm's jobs and nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from controller.ledger import Served
from controller.slurm.client import NodeShare, SlurmJob, SlurmNode
from policies.model import ClusterState, EstimateSource, Jobs, JobState, Nodes

STATIC = np.dtype(
    [
        ("submit_time_s", np.float64),
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
    ]
)
"""What does not change while a job waits; one row per job is kept as bytes and joined into columns."""


def build_state(
    *,
    sequence: int,
    time_s: float,
    nodes: Sequence[SlurmNode],
    foreign: Sequence[tuple[int, NodeShare]],
    statics: npt.NDArray[np.void],
    jobs: Sequence[SlurmJob],
    placements: Sequence[tuple[tuple[int, int, int], ...]],
    estimates: Sequence[tuple[float, float] | None] | None,
    served: Sequence[Served | None] | None,
    node_sets: Sequence[npt.NDArray[np.bool_]],
) -> ClusterState:
    """Lay out the columns. Rows of `statics`, `jobs`, `placements`, `estimates` and `served` belong together.

    A job counts as running when it holds a placement; `served` adds what earlier runs used.
    """
    return ClusterState(
        sequence=sequence,
        time_s=time_s,
        nodes=_nodes(nodes, foreign),
        jobs=_jobs(time_s, statics, jobs, placements, estimates, served),
        node_sets=np.array(node_sets, dtype=np.bool_).reshape(len(node_sets), len(nodes)),
    )


def _nodes(nodes: Sequence[SlurmNode], foreign: Sequence[tuple[int, NodeShare]]) -> Nodes:
    used = np.zeros((3, len(nodes)), dtype=np.int64)
    for row, share in foreign:
        used[:, row] += (share.gpus, share.cpus, share.memory_mib)
    return Nodes(
        names=tuple(node.name for node in nodes),
        gpus=_ints(node.gpus for node in nodes),
        cpus=_ints(node.cpus for node in nodes),
        memory_mib=_ints(node.memory_mib for node in nodes),
        available=np.fromiter((node.available for node in nodes), np.bool_, len(nodes)),
        foreign_gpus=used[0],
        foreign_cpus=used[1],
        foreign_memory_mib=used[2],
        rack=np.zeros(len(nodes), dtype=np.int64),
    )


def _jobs(
    time_s: float,
    statics: npt.NDArray[np.void],
    jobs: Sequence[SlurmJob],
    placements: Sequence[tuple[tuple[int, int, int], ...]],
    estimates: Sequence[tuple[float, float] | None] | None,
    served: Sequence[Served | None] | None,
) -> Jobs:
    count = len(jobs)
    offset = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(placement) for placement in placements], out=offset[1:])
    held = np.array([entry for placement in placements for entry in placement], dtype=np.uint64).reshape(-1, 3)
    running = np.diff(offset) > 0
    start = np.fromiter((_run_start_s(job) for job in jobs), np.float64, count)
    service = np.nan_to_num(np.maximum(time_s - start, 0.0))
    attained = service * statics["num_gpus"]
    submit = statics["submit_time_s"].copy()
    for row, before in enumerate(served or ()):
        if before is not None:
            submit[row] = before.first_submit_s
            service[row] += before.service_s
            attained[row] += before.gpu_s
    duration, spread, source = (
        statics[name].copy() for name in ("duration_estimate_s", "duration_spread_s", "estimate_source")
    )
    for row, estimate in enumerate(estimates or ()):
        if estimate is not None:
            duration[row], spread[row] = estimate
            source[row] = EstimateSource.HISTORY
    user_rows: dict[str, int] = {}
    user = np.fromiter((user_rows.setdefault(job.user, len(user_rows)) for job in jobs), np.int64, count)
    return Jobs(
        ids=tuple(job.key.job_id for job in jobs),
        state=np.where(running, JobState.RUNNING, JobState.PENDING).astype(np.int64),
        submit_time_s=submit,
        start_time_s=start,
        service_s=service,
        attained_gpu_s=attained,
        duration_estimate_s=duration,
        duration_spread_s=spread,
        estimate_source=source,
        # Until jobs can be checkpointed, no running job can yield its place.
        preemptible=np.zeros(count, dtype=np.bool_),
        user=user,
        users=tuple(user_rows),
        placement_offset=offset,
        placement_node=held[:, 0].astype(np.int64),
        placement_gpus=held[:, 1].astype(np.int64),
        placement_gpu_mask=held[:, 2],
        **{
            name: np.ascontiguousarray(statics[name])
            for name in (
                "num_gpus",
                "split",
                "min_nodes",
                "max_nodes",
                "gpus_per_node",
                "cpus_per_gpu",
                "memory_mib_per_gpu",
                "exclusive",
                "node_set",
            )
        },
    )


def _run_start_s(job: SlurmJob) -> float:
    """Start of the run that is going on; NaN while there is none (Slurm keeps the start of the run before)."""
    return job.start_time_s if job.start_time_s is not None and job.phase.holds_nodes else np.nan


def _ints(values: object) -> npt.NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
