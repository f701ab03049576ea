"""Short ways to make what Slurm would say, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmSnapshot
from controller.slurm.model.job import JobKey, NodeShare, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK

NOW_S = 1_000_000.0


def request(**changes: Any) -> ResourceRequest:
    """One node, one task, one CPU, and what `changes` says."""
    return replace(ResourceRequest(min_nodes=1, max_nodes=0, num_tasks=1, num_cpus=1), **changes)


def job(job_id: str = "1", *, submit: int = 999_000, **changes: Any) -> SlurmJob:
    """A pending job of one GPU, held by Headway."""
    base = SlurmJob(
        key=JobKey(job_id, submit),
        user="ann",
        name="train",
        partition="dl",
        phase=Phase.PENDING,
        state="PENDING",
        reason="JobHeldUser",
        held=True,
        admin_comment=HOLD_MARK,
        comment="",
        request=request(gpus_per_node=1),
        allocated=(),
        batch=True,
        requeue=True,
        restarts=0,
        eligible_time_s=None,
        start_time_s=None,
        end_time_s=None,
        time_limit_s=3600.0,
        features="",
        reservation="",
        account="",
        qos="",
        dependency="",
        exclusive=False,
        licenses="",
        array_job_id=None,
        het_job_id=None,
    )
    return replace(base, **changes)


def running(job_id: str = "1", *, on: dict[str, int], since: float = NOW_S - 100, **changes: Any) -> SlurmJob:
    """A job that holds these GPUs."""
    shares = tuple(NodeShare(node, gpus, 0, gpus, 0) for node, gpus in on.items())
    return job(
        job_id,
        **{
            "phase": Phase.RUNNING,
            "state": "RUNNING",
            "reason": "None",
            "held": False,
            "allocated": shares,
            "start_time_s": since,
            "request": request(gpus_per_node=next(iter(on.values())), min_nodes=len(on)),
            **changes,
        },
    )


def node(name: str = "n1", **changes: Any) -> SlurmNode:
    """An idle node of 8 GPUs and 64 CPUs in partition dl."""
    base = SlurmNode(
        name=name,
        state="IDLE",
        available=True,
        gpus=8,
        gpu_type="",
        cpus=64,
        memory_mib=256_000,
        features=frozenset(),
        partitions=frozenset({"dl"}),
        reason="",
    )
    return replace(base, **changes)


def snapshot(*jobs: SlurmJob, nodes: tuple[SlurmNode, ...] | int = 4, **changes: Any) -> SlurmSnapshot:
    """These jobs on that many default nodes."""
    table = tuple(node(f"n{i}") for i in range(1, nodes + 1)) if isinstance(nodes, int) else nodes
    names = frozenset(entry.name for entry in table)
    base = SlurmSnapshot(
        time_s=NOW_S,
        jobs=jobs,
        nodes=table,
        partitions=(SlurmPartition("dl", names, up=True, max_time_s=None),),
        reservations=(),
    )
    return replace(base, **changes)
