"""Agents and jobs that claim what cannot be, over real streams: it costs them, and no other node or job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.state.preemption import PreemptionMethod
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.admin.test_service import asking
from tests.unit.controller.worlds.preempted import Ranks, preempted_world


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_a_world_size_of_two_billion_is_never_counted(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        job = await cluster.running()
        # when a job claims to have two billion ranks
        cluster.agents["n1"].trains(Ranks(job.raw_id or 0, (0, 1, 2, 3), 2**31 - 1))
        await cluster.said()
        # then the report is acknowledged and left out, and what was known before holds
        assert cluster.server.left_out == {"bounds": 1}
        why = await admin.Why(pb.WhyRequest(job_id=job.key.job_id))
        assert why.facts["preemptible"]
        assert cluster.world.preemptions.preemptibility(job).way is PreemptionMethod.CHECKPOINT
        # and the agent is still heard
        await cluster.train(job.key)
        assert cluster.server.nodes["n1"].connected


async def test_a_node_that_does_not_run_a_job_cannot_keep_it_from_being_preempted(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        assert cluster.world.preemptions.preemptibility(job).may
        # when another node claims a rank of the job that saves nothing, and another number of ranks
        cluster.agents["n3"].trains(Ranks(job.raw_id or 0, (5,), 64, saving=()))
        await cluster.said()
        # then the job's own nodes are believed
        assert cluster.world.preemptions.preemptibility(job).may


async def test_an_agent_that_sends_only_nonsense_disturbs_no_other(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        for number in range(300):
            lie = Ranks(job.raw_id or 0, (number,), 2, saved_step=2**64 - 1, restart=2**32 - 1).report()
            cluster.agents["n4"].outbox.put(lie, keep=True)
        await cluster.said()
        assert cluster.server.left_out == {"bounds": 300}
        await cluster.train(job.key)
        assert cluster.world.preemptions.preemptibility(job).may
