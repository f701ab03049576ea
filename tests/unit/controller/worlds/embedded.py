"""An embedded Slurm for tests, on a virtual clock."""

from __future__ import annotations

from typing import Any

from controller.base.clock import VirtualClock
from controller.slurm.embedded import ClusterDescription, EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import JobKey, Phase


class Lab:
    """An embedded Slurm on a virtual clock that starts at second 0 of some day."""

    def __init__(self, description: ClusterDescription | None = None, **options: Any) -> None:
        self.clock = VirtualClock()
        self.start_s = self.clock.now()
        self.slurm = EmbeddedSlurm(description, self.clock, **options)
        self.client = self.slurm.client

    def sbatch(self, gpus: int = 1, duration_s: float = 100.0, *, nodes: int | None = None, **more: Any) -> JobKey:
        """Submit a job with so many GPUs on each node, unless `request` says otherwise."""
        request = more.pop("request", None) or sbatch_request(gpus_per_node=gpus, nodes=nodes)
        return self.slurm.submit(Submission(request=request, duration_s=duration_s, **more))

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def job(self, key: JobKey) -> Job:
        return self.slurm.job(key.job_id)

    def phase(self, key: JobKey) -> Phase:
        return self.job(key).phase

    def state(self, key: JobKey) -> str:
        return self.job(key).state

    def reason(self, key: JobKey) -> str:
        return self.job(key).reason

    def nodes(self, key: JobKey) -> tuple[str, ...]:
        return tuple(share.node for share in self.job(key).allocated)

    def started_at(self, key: JobKey) -> float:
        """Seconds after the lab's start."""
        start_s = self.job(key).start_time_s
        assert start_s is not None, f"{key} has not started: {self.reason(key)}"
        return start_s - self.start_s
