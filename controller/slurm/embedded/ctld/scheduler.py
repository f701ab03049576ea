"""Slurm's own scheduling: a pass in order of priority, and backfill that does not delay jobs with a higher priority.

The main pass stops for a partition at the first job that finds no room; a job bound to nodes only keeps others off those
nodes. Backfill plans a start for the first waiting jobs from the time limits of the running ones (EASY, with several
reservations), and starts the jobs that do not delay these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.slurm.embedded.ctld.allocation import Capacity, allocate, lowest_bits
from controller.slurm.embedded.ctld.gates import has_features, why_not_considered
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.records import Records
from controller.slurm.model.job import IMPOSSIBLE, NodeShare, ResourceRequest

_MAX_PLANS = 8
"""Maximum number of waiting jobs whose planned start backfill does not delay."""
RESOURCES, PRIORITY = "Resources", "Priority"
Start = Callable[[Job, tuple[NodeShare, ...], str], None]
"""Starts a job: the job, its shares of nodes, and the partition."""


@dataclass(slots=True)
class _Plan:
    """Planned nodes and start of a waiting job; `left` is what then remains of its nodes."""

    start_s: float
    left: dict[str, Capacity]


class Scheduler:
    """Starts pending jobs. Invariant: a job that starts by backfill delays no planned one, if jobs keep their time limits."""

    def __init__(self, records: Records, start: Start) -> None:
        """Start jobs with `start`, which gives a job its nodes and launches it; the records show that at once."""
        self._records = records
        self._start = start

    def main_pass(self) -> bool:
        """Start jobs in order of priority; return whether a job waits for free nodes."""
        full: set[str] = set()
        kept: set[str] = set()
        for job in self._records.queue():
            if gate := why_not_considered(self._records, job):
                job.reason = gate
            elif job.partition in full:
                job.reason = PRIORITY
            elif not self._try_start(job, kept):
                job.reason = IMPOSSIBLE if _bound_in_vain(job) else self._why_not(job)
                if job.reason == IMPOSSIBLE:
                    job.priority = 0  # as slurmctld does (seen on 22.05); a release takes it off
                elif job.request.required_nodes and len(job.request.required_nodes) >= job.request.min_nodes:
                    kept.update(job.request.required_nodes)
                elif job.reason == RESOURCES and not job.submission.never_starts:
                    full.add(job.partition)
        return bool(full or kept)

    def backfill_pass(self) -> None:
        """Start the jobs that fit beside the plans of the jobs before them.

        Within a pass free resources only shrink: where one job found none, no later job of the same kind finds any.
        """
        plans: list[_Plan] = []
        no_room: set[_Kind] = set()
        for job in self._records.queue():
            kind, full = _kind(job), len(plans) >= _MAX_PLANS
            if (
                (full and kind in no_room)
                or job.submission.never_starts
                or _bound_in_vain(job)
                or why_not_considered(self._records, job)
            ):
                continue
            if kind not in no_room and self._try_backfill(job, plans):
                continue
            no_room.add(kind)
            if not full and (plan := self._plan(job)):
                plans.append(plan)

    def _try_start(self, job: Job, kept: set[str]) -> bool:
        if job.submission.never_starts or _bound_in_vain(job):
            return False
        for partition in job.partition.split(","):
            free = {name: free for name, free in self._free(job, partition).items() if name not in kept}
            if shares := self._allocate(job, free):
                self._start(job, shares, partition)
                return True
        return False

    def _try_backfill(self, job: Job, plans: list[_Plan]) -> bool:
        end_s = self._records.now_s + (job.time_limit_s or float("inf"))
        in_the_way = [plan for plan in plans if plan.start_s < end_s]
        for partition in job.partition.split(","):
            free = _beside(self._free(job, partition), in_the_way)
            if shares := self._allocate(job, free):
                for plan in in_the_way:
                    for share in shares:
                        if share.node in plan.left:
                            plan.left[share.node] = plan.left[share.node].less(share)
                self._start(job, shares, partition)
                return True
        return False

    def _plan(self, job: Job) -> _Plan | None:
        """Return the earliest start by the time limits: a search over the times at which running jobs must end."""
        occupants = sorted(self._records.occupants(), key=lambda occupant: (_latest_end(occupant), occupant.sequence))
        low, high = 1, len(occupants)
        found: tuple[NodeShare, ...] | None = None
        found_at: tuple[int, dict[str, Capacity]] | None = None
        while low <= high:
            middle = (low + high) // 2
            gone = frozenset(occupant.job_id for occupant in occupants[:middle])
            free = {
                name: self._records.nodes[name].without(gone) for name in self._free(job, job.partition.split(",")[0])
            }
            if shares := self._allocate(job, free):
                found, found_at, high = shares, (middle, free), middle - 1
            else:
                low = middle + 1
        if found is None or found_at is None:
            return None
        count, free = found_at
        return _Plan(_latest_end(occupants[count - 1]), {share.node: free[share.node].less(share) for share in found})

    def _allocate(self, job: Job, free: Mapping[str, Capacity]) -> tuple[NodeShare, ...] | None:
        memory = self._records.description.default_memory_mib_per_cpu
        return allocate(job.request, job.submission.exclusive, free, memory, job.gpu_masks)

    def _free(self, job: Job, partition_name: str) -> dict[str, Capacity]:
        """Return the free resources of each node that the job may use."""
        partition = self._records.partitions[partition_name]
        if not partition.up:
            return {}
        return {
            name: node.free
            for name in partition.nodes
            if self._records.may_start_jobs(node := self._records.nodes[name])
            and name not in job.submission.unfit_nodes
            and has_features(job.submission.features, node.features)
            and not self._reserved_for_others(job, name)
        }

    def _reserved_for_others(self, job: Job, node: str) -> bool:
        now_s = self._records.now_s
        end_s = now_s + (job.time_limit_s or float("inf"))
        own = job.submission.reservation
        if own:
            mine = self._records.reservations.get(own)
            if mine is None or not mine.active(now_s) or node not in mine.view.nodes:
                return True
        return any(
            name != own and node in r.view.nodes and r.view.start_time_s < end_s and r.view.end_time_s > now_s
            for name, r in self._records.reservations.items()
        )

    def _why_not(self, job: Job) -> str:
        """Return Slurm's reason why no nodes are found."""
        required = job.request.required_nodes
        away = [name for name in required if not self._records.may_start_jobs(self._records.nodes[name])]
        if away:
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(away)}"
        if job.submission.reservation and not self._free(job, job.partition.split(",")[0]):
            return "Reservation"
        if any(self._reserved_for_others(job, name) for name in required):
            return "ReqNodeNotAvail, May be reserved for other job"
        members = {name for partition in job.partition.split(",") for name in self._records.partitions[partition].nodes}
        whole = {
            name: node.whole
            for name, node in self._records.nodes.items()
            if name in members and has_features(job.submission.features, node.features)
        }
        if self._allocate(job, whole) is None:
            return "PartitionConfig" if set(required) - members else IMPOSSIBLE
        up = {name: all_of_it for name, all_of_it in whole.items() if self._records.nodes[name].available}
        if self._allocate(job, up) is None:
            return "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
        return RESOURCES


_Kind = tuple[ResourceRequest, bool, str, str, str, float | None, frozenset[str], tuple[tuple[str, int], ...]]


def _kind(job: Job) -> _Kind:
    """Return all values that decide where a job fits."""
    how = job.submission
    where = (how.features, how.reservation, job.partition)
    return (job.request, how.exclusive, *where, job.time_limit_s, how.unfit_nodes, tuple(job.gpu_masks.items()))


def _bound_in_vain(job: Job) -> bool:
    return job.submission.free_choice_only and bool(job.request.required_nodes)


def _latest_end(job: Job) -> float:
    if job.start_time_s is None or job.time_limit_s is None:
        return float("inf")
    return job.start_time_s + job.time_limit_s


def _beside(free: dict[str, Capacity], plans: list[_Plan]) -> dict[str, Capacity]:
    """Return the resources that are free now and stay free when the plans are carried out."""
    for plan in plans:
        for name, left in plan.left.items():
            if name in free:
                now = free[name]
                mask = lowest_bits(now.gpu_mask, min(now.gpus, left.gpus))
                free[name] = Capacity(mask, min(now.cpus, left.cpus), min(now.memory_mib, left.memory_mib), False)
    return free
