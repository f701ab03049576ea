"""A cluster whose jobs can be preempted: an embedded Slurm, and agents over real streams whose ranks save on request."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.admin.serve import serve_admin
from controller.agents.profile_requests import ProfileRequests
from controller.agents.server import AgentsServer
from controller.agents.service import serve_agents
from controller.contention.service import judge_contention
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.preemption import Preemption, Stage
from protos.headway.v1 import agent_pb2
from tests.unit.controller.agents.test_server import PATIENT, Agent
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.world import newest
from tests.unit.policies.processes import eventually

NS = 1_000_000_000


@dataclass
class Ranks:
    """One run of a job on one node."""

    job_id: int
    ranks: tuple[int, ...]
    world_size: int
    restart: int = 0
    saving: tuple[int, ...] | None = None
    """Those that called headway_job.checkpoint; None: all."""
    restored_step: int | None = None
    saved_step: int | None = None
    first_step_s: float | None = 10.0
    """Time since the end of its first step, seconds; None: it has not made one."""

    def report(self) -> agent_pb2.AgentReport:
        now_ns = 1000 * NS
        job = agent_pb2.JobReport(
            job=agent_pb2.JobName(job_id=self.job_id, uid=1000, restart=self.restart),
            script="train.py",
            ranks=self.ranks,
            world_size=self.world_size,
            monotonic_ns=now_ns,
        )
        saving = self.ranks if self.saving is None else self.saving
        if saving:
            reported = agent_pb2.JobCheckpoint(
                ranks=saving, restored_step=self.restored_step, saved_step=self.saved_step
            )
            job.checkpoint.CopyFrom(reported)
        if self.first_step_s is not None:
            job.steps = 5
            job.first_step_ns = now_ns - int(self.first_step_s * NS)
        return agent_pb2.AgentReport(time_s=time.time(), job=job)


class SavingAgent(Agent):
    """An agent whose ranks save at `step` when they are asked, unless `answers` says otherwise.

    As a real one it carries every id out once, and answers again what it has answered.
    """

    def __init__(self, address: str, node: str, **settings: Any) -> None:
        super().__init__(address, node, **{**PATIENT, **settings})
        self.here: dict[int, Ranks] = {}
        self.step = 41
        self.answers: Callable[[agent_pb2.AgentCommand], agent_pb2.CommandAnswer | None] = self.save
        self._answered: dict[str, agent_pb2.CommandAnswer] = {}

    def heed(self, command: agent_pb2.AgentCommand) -> None:
        super().heed(command)
        answer = self._answered.get(command.id) or self.answers(command)
        if answer is not None:
            self.answer(command.id, answer)

    def answer(self, id_: str, answer: agent_pb2.CommandAnswer) -> None:
        answer.id = id_
        self._answered[id_] = answer
        self.outbox.put(agent_pb2.AgentReport(time_s=time.time(), answer=answer), keep=True)

    def save(self, command: agent_pb2.AgentCommand) -> agent_pb2.CommandAnswer:
        ranks = self.here.get(command.job.job_id)
        if command.WhichOneof("what") != "save":
            return agent_pb2.CommandAnswer(accepted=True)
        if ranks is None or not ranks.ranks:
            return no(f"nobody of job {command.job.job_id} trains here", agent_pb2.ANSWER_REASON_NO_TRAINERS)
        saved = agent_pb2.SavedRanks(ranks=ranks.ranks, world_size=ranks.world_size, step=self.step)
        return agent_pb2.CommandAnswer(accepted=True, saved=saved)

    def trains(self, ranks: Ranks) -> None:
        """Let the job train here from now on, and report it to the controller."""
        self.here[ranks.job_id] = ranks
        self.outbox.put(ranks.report(), keep=True)

    def asked(self, what: str = "save") -> list[agent_pb2.AgentCommand]:
        return [command for command in self.commands if command.WhichOneof("what") == what]

    def forget(self) -> None:
        """Forget all answers, as a new run of the agent would."""
        self._answered.clear()


def no(
    problem: str, reason: agent_pb2.AnswerReason.ValueType = agent_pb2.ANSWER_REASON_RANK_FAILED
) -> agent_pb2.CommandAnswer:
    return agent_pb2.CommandAnswer(accepted=False, problem=problem, reason=reason)


def silent(_: agent_pb2.AgentCommand) -> None:
    """An agent that is asked and never answers."""


class Preempted:
    """The cluster, its controller, and the agents of its nodes."""

    def __init__(
        self, world: ControllerWorld, server: AgentsServer, agents: Iterable[SavingAgent], profiling: ProfileRequests
    ) -> None:
        self.world = world
        self.server = server
        self.profiling = profiling
        self.agents = {agent.node: agent for agent in agents}
        self.attach()

    def attach(self) -> None:
        """The controller of the moment is the one that agents tell."""
        preemptions = self.world.preemptions
        preemptions.serve(self.server)
        self.server.listeners[:] = [preemptions.on_report, self.profiling.on_report]
        self.server.on_connect[:] = [preemptions.on_connected]

    def restart(self) -> None:
        """Restart the controller as after kill -9, with agents that have found the new one."""
        self.world.journal.close()
        self.world.restart()
        self.attach()

    async def train(self, key: JobKey, **changes: Any) -> SlurmJob:
        """The ranks of a running job, one by GPU, tell their agents. Gives the job as Slurm shows it."""
        job = self.slurm_job(key.job_id)
        world_size = sum(share.gpus for share in job.allocated)
        first = 0
        for share in job.allocated:
            ranks = tuple(range(first, first + share.gpus))
            first += share.gpus
            if share.node in self.agents:
                reported = {"restart": job.restarts, **changes}
                self.agents[share.node].trains(Ranks(job.raw_id or 0, ranks, world_size, **reported))
        await self.said()
        return job

    async def running(self, gpus_per_node: int = 4, nodes: int = 2, **more: Any) -> SlurmJob:
        """A job that runs on the first nodes and trains there."""
        key = self.world.sbatch(
            duration_s=more.pop("duration_s", 1e6), gpus_per_node=gpus_per_node, nodes=nodes, **more
        )
        await self.world.go_on(3)
        return await self.train(key)

    def slurm_job(self, job_id: str) -> SlurmJob:
        last = self.world.last
        assert last is not None
        found = [job for job in last.observation.snapshot.jobs if job.key.job_id == job_id]
        return max(found, key=lambda job: job.key.submit_time_s)

    async def said(self) -> None:
        """Everything that agents had to say has been taken in."""
        for agent in self.agents.values():
            await agent.emptied()

    async def heard(self, *nodes: str, times: int = 1) -> None:
        """The agents of those nodes have been asked to save so often, and the controller has their answers."""

        async def asked() -> bool:
            return all(len(self.agents[node].asked()) >= times for node in nodes)

        await eventually(asked)
        await self.said()

    def row(self, number: int = 1) -> Preemption:
        found = self.world.preemptions.find(number)
        assert found is not None
        return found

    async def comes_to(self, stage: Stage, number: int = 1) -> Preemption:
        """The preemption has come so far, by what agents say."""

        async def there() -> bool:
            return self.row(number).stage is stage

        try:
            await eventually(there)
        except AssertionError:
            raise AssertionError(f"not {stage}: {self.row(number)}") from None
        return self.row(number)

    async def runs_again(self, job_id: str, restarts: int = 1) -> SlurmJob:
        """Cycle until Slurm shows the job running after so many requeues."""
        for _ in range(20):
            await self.world.go_on(1)
            job = self.slurm_job(job_id)
            if job.phase is Phase.RUNNING and job.restarts == restarts:
                return job
        found = self.world.slurm.job(job_id)
        raise AssertionError(f"job {job_id} is {found.phase} after {found.restarts} requeues")

    def events(self, job_id: str) -> list[str]:
        return [event.text for event in self.world.events.recent(job_id) if event.kind == "preempt"]


@asynccontextmanager
async def preempted_world(
    folder: Path, nodes: Iterable[str] = ("n1", "n2", "n3", "n4"), window_s: float | None = None, **changes: Any
) -> AsyncIterator[Preempted]:
    """A controller whose clock is turned by hand, asked over its sockets, with the agents of those nodes connected.

    `window_s`: length of the windows by which contention is judged; None: it is not.
    """
    address = f"unix://{folder}/agents.sock"
    settings = {"agents_address": address, "state_dir": folder / "state", **changes.pop("settings_changes", {})}
    world = world_in(folder, settings_changes=settings, **changes)
    world.endpoint.away = True
    await world.turn()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve_agents(world.settings, newest(world)))
        assert server is not None
        if window_s is not None:
            world.contention = await stack.enter_async_context(judge_contention(world, window_s))
        profiling = ProfileRequests(server)
        await stack.enter_async_context(
            serve_admin(world, folder, "", contention=world.contention, profiling=profiling)
        )
        agents = [await stack.enter_async_context(SavingAgent(address, node).running()) for node in nodes]
        for agent in agents:
            await agent.connected()
        yield Preempted(world, server, agents, profiling)
