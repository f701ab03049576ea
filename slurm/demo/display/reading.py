"""Views of a cluster, from snapshots of Slurm and the counters of NICs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import NodeShare, Phase, SlurmJob
from slurm.demo.display.view import ClusterView, JobView, LinkView, NodeView, Stage
from slurm.demo.workload import label

_BITS_PER_MEGABIT = 1e6


class ByteCounts(Protocol):
    """Bytes that a NIC has carried so far."""

    @property
    def sent(self) -> int:
        """Bytes sent."""

    @property
    def received(self) -> int:
        """Bytes received."""


class LinkMeter:
    """Computes rates from counters; each reading covers the time since the previous one."""

    def __init__(self) -> None:
        self._before: Mapping[str, ByteCounts] = {}
        self._at_s = 0.0

    def rates(self, counts: Mapping[str, ByteCounts], now_s: float) -> dict[str, LinkView]:
        """Return Mbit/s by node; empty at the first reading."""
        elapsed_s = now_s - self._at_s
        before, self._before, self._at_s = self._before, counts, now_s
        if elapsed_s <= 0:
            return {}

        def mbps(now: int, then: int) -> float:
            return max(now - then, 0) * 8 / elapsed_s / _BITS_PER_MEGABIT

        return {
            node: LinkView(mbps(now.sent, then.sent), mbps(now.received, then.received))
            for node, now in counts.items()
            if (then := before.get(node)) is not None
        }


def view_of(snapshot: SlurmSnapshot, ours: Mapping[str, str], links: Mapping[str, LinkView]) -> ClusterView:
    """Return a view of the jobs in `ours`, which maps job ids (of arrays, for their tasks) to names of scripts."""
    mine: dict[str, SlurmJob] = {}
    for job in snapshot.jobs:
        base, _, task = job.key.job_id.partition("_")
        if base in ours:
            mine[label(ours[base], int(task) if task.isdigit() else None)] = job
    return ClusterView(
        time_s=snapshot.time_s,
        jobs={name: _job_view(name, job) for name, job in mine.items()},
        nodes=tuple(NodeView(node.name, _owners(node.name, node.gpus, mine)) for node in snapshot.nodes),
        links=links,
    )


def _job_view(name: str, job: SlurmJob) -> JobView:
    waits = job.phase is Phase.PENDING
    return JobView(
        label=name,
        job_id=job.key.job_id,
        stage=_stage(job),
        gpus=tuple((share.node, share.gpus) for share in job.allocated),
        submit_s=float(job.key.submit_time_s),
        start_s=None if waits else job.start_time_s,
        end_s=job.end_time_s if job.phase is Phase.ENDED else None,
        why=job.reason if waits and job.reason != "None" else "",
        state=job.state,
    )


def _stage(job: SlurmJob) -> Stage:
    if job.phase is Phase.PENDING:
        return Stage.WAITING
    if job.phase is Phase.ENDED:
        return Stage.DONE if job.state == "COMPLETED" else Stage.FAILED
    return Stage.RUNNING


def _owners(node: str, gpus: int, jobs: Mapping[str, SlurmJob]) -> tuple[str, ...]:
    """Return the label of the job that occupies each GPU; jobs with unknown GPU indices get the lowest free ones."""
    owners = [""] * gpus
    holders = [
        (name, share)
        for name, job in jobs.items()
        if job.phase.occupies_nodes
        for share in job.allocated
        if share.node == node
    ]
    for name, share in sorted(holders, key=lambda holder: holder[1].gpu_mask == 0):
        for gpu in _gpus_of(share, owners):
            owners[gpu] = name
    return tuple(owners)


def _gpus_of(share: NodeShare, owners: list[str]) -> list[int]:
    if share.gpu_mask:
        return [gpu for gpu in range(len(owners)) if share.gpu_mask >> gpu & 1]
    return [gpu for gpu, owner in enumerate(owners) if not owner][: share.gpus]
