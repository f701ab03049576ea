"""Reports that the controller sends to jobs whose users want one in their own log."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.admin.report.job_notes import JobNotes
from controller.admin.report.log_lines import log_lines
from controller.admin.report.log_reports import EVERY_S, LogReports
from controller.admin.report.reports import Reports
from controller.admin.viewer import Viewer
from protos.headway.v1 import admin_pb2 as pb
from protos.headway.v1 import agent_pb2
from tests.unit.controller.worlds.preempted import Preempted, Ranks, preempted_world
from tests.unit.policies.processes import eventually


@pytest.fixture
async def cluster() -> AsyncIterator[Preempted]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        async with preempted_world(Path(path)) as made:
            yield made


class Given:
    """The part under test, beside the world's controller and agents."""

    def __init__(self, cluster: Preempted) -> None:
        world = cluster.world
        self._cluster = cluster
        self.now_s = 0.0
        notes = JobNotes(world.journal.job_notes, world.preemptions.steps_done)
        world.listeners.append(notes.note)
        self._viewer = Viewer(world)
        self._reports = Reports(self._viewer, notes)
        self.log_reports = LogReports(cluster.server, lambda: self.now_s)

    async def turn(self, times: int = 3) -> None:
        for _ in range(times):
            await self.log_reports.send_next(self._viewer, self._reports)

    async def sent(self, node: str, times: int) -> list[agent_pb2.AgentCommand]:
        """Return the reports that the node's agent has received, once there are so many."""
        agent = self._cluster.agents[node]

        async def there() -> bool:
            return len(agent.asked("report")) >= times

        await eventually(there)
        return agent.asked("report")


async def wanted(cluster: Preempted, node: str, ranks: Ranks) -> None:
    report = ranks.report()
    report.job.report_wanted = True
    cluster.agents[node].outbox.put(report, keep=True)
    await cluster.agents[node].emptied()


async def test_a_job_whose_user_wants_it_gets_its_report_once_a_minute(cluster: Preempted) -> None:
    given = Given(cluster)
    # given a job that waited for another, and wants a report on n1, and a job that does not
    first = cluster.world.sbatch(20.0, gpus_per_node=8, nodes=4)
    await cluster.world.go_on(3)
    job = await cluster.running(nodes=1, gpus_per_node=8)
    await cluster.world.go_on(40)
    job = cluster.slurm_job(job.key.job_id)
    (node,) = (share.node for share in job.allocated)
    ranks = Ranks(job.raw_id or 0, (0,), 1)
    await given.turn()
    await wanted(cluster, node, ranks)
    # when reports are sent, then this job has one, on the node that asked, without an answer
    await given.turn()
    (command,) = await given.sent(node, 1)
    assert (command.job.job_id, command.job.restart) == (job.raw_id, 0)
    assert command.report.lines[0].startswith("the job waited ")
    assert "for GPUs" in command.report.lines[0]
    # and the next a minute later
    given.now_s += EVERY_S - 1
    await given.turn()
    given.now_s += 1
    await given.turn()
    assert len(await given.sent(node, 2)) == 2
    # and none once it has left the node
    cluster.agents[node].outbox.put(agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=command.job)), keep=True)
    await cluster.agents[node].emptied()
    given.now_s += EVERY_S
    await given.turn()
    await cluster.said()
    assert len(cluster.agents[node].asked("report")) == 2
    assert first.job_id != job.key.job_id


async def test_a_run_that_slurm_does_not_show_gets_none(cluster: Preempted) -> None:
    given = Given(cluster)
    job = await cluster.running(nodes=1)
    (node,) = (share.node for share in job.allocated)
    await wanted(cluster, node, Ranks(job.raw_id or 0, (0,), 1, restart=3))
    await wanted(cluster, node, Ranks(9999, (0,), 1))
    await given.turn()
    await cluster.said()
    assert cluster.agents[node].asked("report") == []


async def test_an_agent_of_another_node_gets_none(cluster: Preempted) -> None:
    given = Given(cluster)
    job = await cluster.running(nodes=1)
    (node,) = (share.node for share in job.allocated)
    other = next(name for name in cluster.agents if name != node)
    ranks = Ranks(job.raw_id or 0, (0,), 1)
    await wanted(cluster, other, ranks)
    await given.turn()
    # and it keeps nobody from asking
    await wanted(cluster, node, ranks)
    await given.turn()
    assert len(await given.sent(node, 1)) == 1
    await cluster.said()
    assert cluster.agents[other].asked("report") == []


async def test_there_are_no_more_once_no_program_of_the_job_wants_one(cluster: Preempted) -> None:
    given = Given(cluster)
    job = await cluster.running(nodes=1)
    (node,) = (share.node for share in job.allocated)
    ranks = Ranks(job.raw_id or 0, (0,), 1)
    await wanted(cluster, node, ranks)
    await given.turn()
    assert len(await given.sent(node, 1)) == 1
    cluster.agents[node].outbox.put(ranks.report(), keep=True)
    await cluster.agents[node].emptied()
    given.now_s += EVERY_S
    await given.turn()
    await cluster.said()
    assert len(cluster.agents[node].asked("report")) == 1


def test_long_lines_show_where_they_were_cut() -> None:
    (waited,) = log_lines(pb.JobSummary(wait_s=3, waits=[pb.ReportedWait(why="x" * 500, wait_s=3)]))
    assert len(waited) == 400
    assert waited.endswith("xxx...")


def test_the_lines_have_what_is_known() -> None:
    found = pb.JobSummary(
        wait_s=2280, gpu_hours=32, idle_gpu_hours=0.2, energy_kwh=16.4, contention_loss=0.12, hint="ask for fewer GPUs",
        waits=[pb.ReportedWait(why="for GPUs", wait_s=1860), pb.ReportedWait(why="for nothing", wait_s=0.2)],
        stops=[
            pb.ReportedStop(cause="policy", why="shorter jobs wait", time_s=1e9, problem="called off: it did not save"),
            pb.ReportedStop(cause="threshold", why="1.9 times slower", time_s=1e9, step=48, cost_s=41),
        ],
    )  # fmt: skip
    waited, stops, first, second, lost, used, hint = log_lines(found)

    assert waited == "the job waited 38 min: 31 min for GPUs"
    assert stops == "2 stops, of which 1 cost 41 s:"
    assert first.endswith(" by policy: shorter jobs wait; called off: it did not save")
    assert second.endswith(" by threshold at step 48, 41 s: 1.9 times slower")
    assert lost == "it lost 12% of its speed to jobs beside it"
    assert used == "it has used 32 GPU hours, 0.2 of them without a process of it on the GPU, 16.4 kWh of its GPUs"
    assert hint == "hint: ask for fewer GPUs"
    assert log_lines(pb.JobSummary(wait_s=3)) == ["the job waited 3 s"]
