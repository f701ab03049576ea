"""Steps that the contract's stories share."""

from __future__ import annotations

from dataclasses import replace

from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from tests.contract.bench import Order, SlurmBench, job_of


async def submit_held(bench: SlurmBench, order: Order) -> tuple[JobKey, SlurmJob]:
    """Submit a job that is held from the start and has our mark, and return it as the client reads it."""
    key = await bench.submit(replace(order, hold=True, admin_comment=f"{order.admin_comment} {HOLD_MARK}".strip()))
    return key, job_of(await bench.client.snapshot(), key.job_id)


async def submit_running(bench: SlurmBench, order: Order) -> tuple[JobKey, SlurmJob]:
    """Submit a job and wait until Slurm has started it by itself."""
    key = await bench.submit(order)
    return key, await running(bench, key)


async def running(bench: SlurmBench, key: JobKey) -> SlurmJob:
    """Wait until the job runs, and return it."""
    snapshot = await bench.wait_until(lambda seen: job_of(seen, key.job_id).phase is Phase.RUNNING)
    return job_of(snapshot, key.job_id)


async def requeued(bench: SlurmBench, before: SlurmJob) -> SlurmJob:
    """Wait until the job is in the queue again after its last run, and return it."""

    def is_back(seen: SlurmSnapshot) -> bool:
        job = job_of(seen, before.key.job_id)
        return job.phase is Phase.PENDING and job.restarts > before.restarts

    return job_of(await bench.wait_until(is_back), before.key.job_id)


def ended(snapshot: SlurmSnapshot, key: JobKey) -> bool:
    """Return True if the job has ended."""
    return job_of(snapshot, key.job_id).phase is Phase.ENDED


async def seen(bench: SlurmBench, key: JobKey) -> SlurmJob:
    """Return the job as it is now, whatever its submit time."""
    return job_of(await bench.client.snapshot(), key.job_id)
