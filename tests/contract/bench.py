"""The world around a Slurm client under test: users, operators and accidents, for a real or an emulated cluster.

What a bench must have: at least 4 idle nodes named in `nodes`, each with `GPUS_PER_NODE` GPUs, at least 16 CPUs, and the
features of `FEATURES`; a default partition over all of them; a second partition, `short_partition`, over all of them, with
MaxTime of `SHORT_MAX_TIME_S`; slurmctld with batch_sched_delay=0; no other jobs. Managed jobs are held by the tests
themselves (`Order.hold`), so no submit plugin is needed, and none may be active.

On a real cluster `submit` is sbatch of a script that sleeps for `duration_s`, traps the signals named, and exits with the
exit code; the methods `user_*` act as the user who submitted the job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from controller.slurm.client import SlurmClient
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, SlurmJob

GPUS_PER_NODE = 8
FEATURES: tuple[str, ...] = ("fast", "fast", "slow", "slow")
"""Feature of the first four nodes."""
SHORT_MAX_TIME_S = 600
MATLAB_LICENSES = 1
"""Licenses named "matlab", on benches that offer "licenses"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The options of an sbatch command. None, empty and False = the option is not given."""

    duration_s: float = 60.0
    """Time for which the script sleeps. It may be long for jobs that the tests stop themselves."""
    gres: int | None = None
    """--gres=gpu:N"""
    gpus_per_node: int | None = None
    """--gpus-per-node=N"""
    gpus: int | None = None
    """--gpus=N"""
    gpus_per_task: int | None = None
    """--gpus-per-task=N"""
    nodes: int | tuple[int, int] | None = None
    """-N k, or -N least-most"""
    ntasks: int | None = None
    """-n"""
    ntasks_per_node: int | None = None
    """--ntasks-per-node"""
    cpus_per_task: int | None = None
    """-c"""
    memory_mib: int | None = None
    """--mem, per node"""
    nodelist: tuple[str, ...] = ()
    """-w"""
    exclude: tuple[str, ...] = ()
    """-x"""
    constraint: str = ""
    """-C"""
    exclusive: bool = False
    """--exclusive"""
    licenses: str = ""
    """-L "matlab:1" (one license, one count)"""
    array: tuple[int, ...] = ()
    """--array"""
    throttle: int = 0
    """--array=...%N"""
    dependency: str = ""
    """-d"""
    begin_in_s: float | None = None
    """--begin=now+N"""
    time_limit_s: int | None = None
    """-t; a multiple of 60"""
    requeue: bool = True
    """False = --no-requeue"""
    hold: bool = False
    """-H"""
    partition: str = ""
    """-p"""
    reservation: str = ""
    """--reservation"""
    name: str = "train"
    """-J"""
    comment: str = ""
    """--comment"""
    admin_comment: str = ""
    """Admin comment that the operator sets right after submission (scontrol update AdminComment=)."""
    traps: frozenset[str] = frozenset()
    """Signals that the script survives."""
    exit_code: int = 0
    """Exit code of the script."""


Condition = Callable[[SlurmSnapshot], bool]


class SlurmBench(Protocol):
    """A cluster with a client under test."""

    @property
    def client(self) -> SlurmClient:
        """The client under test."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in Slurm's order; at least four."""

    @property
    def short_partition(self) -> str:
        """A partition with a MaxTime of SHORT_MAX_TIME_S."""

    @property
    def offers(self) -> frozenset[str]:
        """The optional abilities of this bench: "licenses", "gpu-limit", "reservations", "het", "interactive"."""

    async def submit(self, order: Order) -> JobKey:
        """Run sbatch; return as soon as Slurm has accepted the job. For an array, return the key of its first task."""

    async def submit_het(self) -> str:
        """Submit a held het job of two components with one GPU each, and return the leader's job id."""

    async def submit_interactive(self) -> str:
        """Run srun or salloc with one GPU for at least 30 s, and return its job id."""

    async def submit_over_limit(self) -> JobKey:
        """Submit a held job with GPUs of a user who may hold none (association, QOS or cap)."""

    async def user_hold(self, key: JobKey) -> None:
        """Run scontrol hold as the job's user."""

    async def user_release(self, key: JobKey) -> None:
        """Run scontrol release as the job's user."""

    async def operator_hold(self, key: JobKey) -> None:
        """Run scontrol hold as root."""

    async def operator_requeue(self, key: JobKey) -> None:
        """scontrol requeue, as root."""

    async def cancel(self, key: JobKey) -> None:
        """Run scancel."""

    async def drain(self, node: str) -> None:
        """Run scontrol update state=drain."""

    async def down(self, node: str) -> None:
        """Run scontrol update state=down."""

    async def resume(self, node: str) -> None:
        """Run scontrol update state=resume, again and again until the node may start jobs."""

    async def reserve(self, name: str, nodes: tuple[str, ...], duration_s: int) -> None:
        """Create a reservation that begins now, for the user whose jobs `submit` creates."""

    async def unreserve(self, name: str) -> None:
        """Delete the reservation."""

    async def now(self) -> float:
        """Return the cluster's time, seconds since the Unix epoch."""

    async def wait(self, seconds: float) -> None:
        """Let that much of the cluster's time pass."""

    async def wait_until(self, condition: Condition, timeout_s: float = 30.0) -> SlurmSnapshot:
        """Read snapshots until one satisfies the condition. Raises AssertionError after the time limit, with the last one."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Keep slurmctld from answering in the block (killed or stopped); after it, it answers again."""


def job_of(snapshot: SlurmSnapshot, job_id: str) -> SlurmJob:
    """Return the job with that id, whatever its submit time. Raises AssertionError if there is none."""
    found = [job for job in snapshot.jobs if job.key.job_id == job_id]
    assert len(found) == 1, f"{len(found)} jobs have the id {job_id}"
    return found[0]


def held_gpus(job: SlurmJob) -> dict[str, int]:
    """Return the number of GPUs that the job holds, by node."""
    return {share.node: share.gpus for share in job.allocated}
