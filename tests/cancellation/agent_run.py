"""A scripted run of a node agent beside a controller's end, a job and a GPU driver, in real time, with one await cut."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from pathlib import Path

from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.profiles.store import ProfileStore
from nodeagent.config import AgentSettings
from nodeagent.daemon import NodeAgent, build_agent
from nodeagent.run import controller_reporter
from nodeagent.telemetry.nvml import NvmlReader
from nodeagent.uplink.controller_reporter import ControllerReporter
from policies.serving.runtime.sdnotify import Notifier
from protos.headway.v1 import agent_pb2
from tests.cancellation.points import Cut, Outcome, Point
from tests.cancellation.program import Program, play
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, close_all

TASKS = {"reporter", "saves", "watchdog"}
_QUICK = {
    "policies.serving.runtime.tasks.supervise.FIRST_PAUSE_S": 0.05,
    "nodeagent.daemon._WATCHDOG_S": 0.1,
    "controller.agents.reports.storage._COMPUTE_EVERY_S": 0.2,
}
_GPUS = """
import sys
print('{"absent": null}', flush=True)
for line in sys.stdin:
    print('{"gpus": []}', flush=True)
"""


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Run the script, and cut that await of the agent."""
    return play(_script, TASKS, at, cut, _QUICK)


class _World:
    """The agent's surroundings: a controller's end on a Unix socket, and the agent that runs now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.agent: NodeAgent | None = None
        self.server: AgentsServer | None = None
        self._reporter: ControllerReporter | None = None
        self.answers: list[str] = []

    async def run_agent(self) -> None:
        """As `headway-agent run` does."""
        settings = AgentSettings(
            controller_address=f"unix://{self._folder}/agents.sock", job_socket=self._folder / "job.sock", munge="off",
            report_interval_s=0.5, gpus="off", node_name="n1",
        )  # fmt: skip
        agent = build_agent(settings)
        agent.settings = settings.model_copy(update={"report_interval_s": 0.1})
        agent.sampler.gpus = NvmlReader(1.0, (sys.executable, "-S", "-c", _GPUS))
        agent.job_socket._identify = InJob(7)
        self.agent = agent
        reporter = self._reporter = controller_reporter(settings, agent)
        await agent.run(reporter, Notifier({}))

    async def serve(self, store: ProfileStore) -> AgentsServer:
        """Start a controller's end."""
        settings = AgentsSettings(f"unix://{self._folder}/agents.sock", beat_s=0.2, report_interval_s=0.5)
        self.server = AgentsServer(settings, store, None, self._heard)
        await self.server.start()
        return self.server

    def _heard(self, _node: str, report: agent_pb2.AgentReport) -> None:
        if report.WhichOneof("kind") == "answer":
            self.answers.append(report.answer.id)

    async def reports_come(self) -> bool:
        """Return whether a report comes within a moment."""
        assert self.server is not None, "it was started"
        before = self.server.reports
        await asyncio.sleep(0.3)
        return self.server.reports > before

    async def misses_the_controller(self) -> bool:
        """Return whether the agent has no stream to the controller's end."""
        assert self._reporter is not None, "it was started"
        return not self._reporter.status.connected

    async def answers_a_save(self) -> bool:
        """Return whether a request to save is answered: here by the reason why nothing can be saved."""
        assert self.server is not None, "it was started"
        name = f"save-{len(self.answers)}"
        command = agent_pb2.AgentCommand(id=name, job=agent_pb2.JobName(job_id=7, uid=0))
        command.save.within_s, command.save.still_s = 0.2, 0.2
        self.server.send_command("n1", command)
        await asyncio.sleep(0.5)
        return name in self.answers

    async def welcomes_a_job(self) -> bool:
        """Return whether a process of a job is answered at the job socket."""
        job = Job(self._folder / "job.sock")
        async with asyncio.timeout(1.0):
            return await job.hear() is not None


async def _script(program: Program, folder: Path) -> None:
    """Connect, measure a job, answer a save, see the controller go and come again, and end."""
    world = _World(folder)
    with closing(ProfileStore(folder / "profiles.sqlite")) as store:
        server = await world.serve(store)
        program.start(world.run_agent)
        await program.until("reports come", world.reports_come)
        await program.until("a job is welcomed", world.welcomes_a_job)
        await program.until("a save is answered", world.answers_a_save)
        await server.stop()
        await program.until("the agent misses the controller", world.misses_the_controller)
        server = await world.serve(store)
        await program.until("reports come from a new stream", world.reports_come)
        program.script_is_over()
        await asyncio.sleep(0.2)
        await program.until_tasks_are_alive()
        await program.until("reports come", world.reports_come)
        await program.until("a job is welcomed", world.welcomes_a_job)
        await program.until("a save is answered", world.answers_a_save)
        assert world.agent is not None, "it was started"
        await program.stop(world.agent.stop)
        await server.stop()
    close_all()
