"""The contract on the embedded Slurm, under a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.base.clock import VirtualClock
from controller.slurm.client import SlurmClient
from controller.slurm.embedded import (
    ClusterDescription,
    EmbeddedSlurm,
    GpuLimit,
    NodeDescription,
    PartitionDescription,
    Submission,
    sbatch_request,
)
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey
from tests.contract.bench import GPUS_PER_NODE, MATLAB_LICENSES, SHORT_MAX_TIME_S, Condition, Order
from tests.contract.slurm_contract import SlurmContract

_STEP_S = 0.05
CLUSTER = ClusterDescription(
    nodes=(
        NodeDescription(names="n[1-2]", gpus=GPUS_PER_NODE, features=("fast",)),
        NodeDescription(names="n[3-4]", gpus=GPUS_PER_NODE, features=("slow",)),
    ),
    partitions=(PartitionDescription(name="dl"), PartitionDescription(name="short", max_time_s=SHORT_MAX_TIME_S)),
    licenses={"matlab": MATLAB_LICENSES},
    limits=(GpuLimit(user="poor", gpus=0),),
)


class EmbeddedBench:
    """A bench whose time passes only when a test waits."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.slurm = EmbeddedSlurm(CLUSTER, self.clock)

    @property
    def client(self) -> SlurmClient:
        return self.slurm.client

    @property
    def nodes(self) -> tuple[str, ...]:
        return CLUSTER.node_names

    @property
    def short_partition(self) -> str:
        return "short"

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"licenses", "gpu-limit", "reservations", "het", "interactive"})

    async def submit(self, order: Order) -> JobKey:
        return self.slurm.submit(self._submission(order))

    async def submit_het(self) -> str:
        one_gpu = sbatch_request(gpus_per_node=1)
        return self.slurm.submit(Submission(request=one_gpu, duration_s=60, hold=True, het_components=2)).job_id

    async def submit_interactive(self) -> str:
        return self.slurm.submit(Submission(request=sbatch_request(gpus=1), duration_s=60, batch=False)).job_id

    async def submit_over_limit(self) -> JobKey:
        one_gpu = sbatch_request(gpus_per_node=1)
        return self.slurm.submit(Submission(request=one_gpu, duration_s=60, hold=True, user="poor"))

    async def user_hold(self, key: JobKey) -> None:
        self.slurm.user_hold(key.job_id)

    async def user_release(self, key: JobKey) -> None:
        self.slurm.user_release(key.job_id)

    async def operator_hold(self, key: JobKey) -> None:
        self.slurm.admin_hold(key.job_id)

    async def operator_requeue(self, key: JobKey) -> None:
        self.slurm.requeue(key.job_id)

    async def cancel(self, key: JobKey) -> None:
        self.slurm.cancel(key.job_id)

    async def drain(self, node: str) -> None:
        self.slurm.node_drain(node)

    async def down(self, node: str) -> None:
        self.slurm.node_down(node)

    async def resume(self, node: str) -> None:
        self.slurm.node_resume(node)

    async def reserve(self, name: str, nodes: tuple[str, ...], duration_s: int) -> None:
        now_s = self.clock.now()
        self.slurm.reserve(name, nodes, now_s, now_s + duration_s)

    async def unreserve(self, name: str) -> None:
        self.slurm.unreserve(name)

    async def now(self) -> float:
        return self.clock.now()

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def wait_until(self, condition: Condition, timeout_s: float = 30.0) -> SlurmSnapshot:
        deadline_s = self.clock.now() + timeout_s
        while not condition(snapshot := await self.client.snapshot()):
            assert self.clock.now() < deadline_s, f"not within {timeout_s} s: {snapshot.jobs}"
            await self.clock.advance(_STEP_S)
        return snapshot

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        with self.slurm.faults.unavailable():
            yield

    def _submission(self, order: Order) -> Submission:
        name, _, count = order.licenses.partition(":")
        return Submission(
            request=sbatch_request(
                gpus_per_node=order.gres or order.gpus_per_node,
                gpus=order.gpus,
                gpus_per_task=order.gpus_per_task,
                nodes=order.nodes,
                ntasks=order.ntasks,
                ntasks_per_node=order.ntasks_per_node,
                cpus_per_task=order.cpus_per_task or 1,
                memory_mib_per_node=order.memory_mib,
                nodelist=order.nodelist,
                exclude=order.exclude,
            ),
            duration_s=order.duration_s,
            name=order.name,
            partition=order.partition,
            time_limit_s=order.time_limit_s,
            hold=order.hold,
            begin_time_s=None if order.begin_in_s is None else self.clock.now() + order.begin_in_s,
            dependency=order.dependency,
            array=order.array,
            throttle=order.throttle,
            features=order.constraint,
            reservation=order.reservation,
            exclusive=order.exclusive,
            licenses={name: int(count)} if name else {},
            comment=order.comment,
            admin_comment=order.admin_comment,
            requeue=order.requeue,
            exit_code=order.exit_code,
            traps=order.traps,
        )


class TestEmbeddedSlurm(SlurmContract):
    @pytest.fixture
    def bench(self) -> EmbeddedBench:
        return EmbeddedBench()
