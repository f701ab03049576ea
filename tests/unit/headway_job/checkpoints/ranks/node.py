"""The agent of one node and a job that trains, with real sockets and processes. The test takes the place of the controller."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nodeagent.config import AgentSettings
from nodeagent.daemon import NodeAgent, build_agent
from nodeagent.jobsocket.registry import JobRegistry, TrainingProcess
from nodeagent.saves.coordinator import JobRequests, SaveAnswer, SaveRequest
from nodeagent.wire.report import CheckpointReport, JobReport, NodeReport
from policies.serving.runtime.sdnotify import Notifier
from tests.unit.headway_job.checkpoints.conftest import Started
from tests.unit.nodeagent.jobsocket.peers import InJob

JOB = 7
PATIENCE_S = 60.0


class Heard:
    """A Reporter that keeps everything."""

    def __init__(self) -> None:
        self.rows: list[JobReport] = []
        """Rows of the job, in order."""
        self.hasty = 0
        self.answers: list[SaveAnswer] = []

    @property
    def checkpoint(self) -> CheckpointReport:
        """Return the newest report of the checkpoint."""
        none = CheckpointReport((), None, None, saving=False)
        return next((row.checkpoint for row in reversed(self.rows) if row.checkpoint is not None), none)

    def report(self, report: NodeReport) -> None:
        self.rows += [row for row in report.jobs if row.job_id == JOB]

    def report_early(self, report: NodeReport) -> None:
        self.hasty += 1
        self.report(report)

    def answer(self, answer: SaveAnswer) -> None:
        self.answers.append(answer)

    async def run(self) -> None:
        await asyncio.Event().wait()


class LossyPost:
    """A Post that delivers no request for a save to some ranks."""

    def __init__(self, post: JobRequests, jobs: JobRegistry, ranks: set[int]) -> None:
        self._post = post
        self._jobs = jobs
        self._ranks = ranks

    def request_save(self, connection: int, save_id: str, still_s: float, why: str) -> bool:
        [rank] = [one.rank for one in self._jobs.training_processes(JOB, 0) if one.connection == connection]
        return rank not in self._ranks and self._post.request_save(connection, save_id, still_s, why)

    def request_go_on(self, connection: int, save_id: str) -> bool:
        return self._post.request_go_on(connection, save_id)


class Node:
    """A node, whose agents run one after the other and use the same socket."""

    def __init__(self, folder: Path) -> None:
        self.deaf: set[int] = set()
        """Ranks that get no request for a save."""
        self.socket = folder / "run" / "job.sock"
        self.heard = Heard()
        self.asked = folder / "asked"
        """A file that exists once the test has sent a request; the ranks wait for it after a few steps. It names the ranks
        that need not wait for the request itself, as JSON."""
        self._numbers = itertools.count(1)
        self.agent: NodeAgent

    @asynccontextmanager
    async def agent_runs(self) -> AsyncIterator[NodeAgent]:
        """Run the agent once."""
        values: dict[str, Any] = {
            "controller_address": "127.0.0.1:1",
            "job_socket": self.socket,
            "report_interval_s": 300.0,
            "gpus": "off",
            "node_name": "n1",
        }
        self.agent = agent = build_agent(AgentSettings(**values))
        agent.job_socket._identify = InJob(JOB)
        agent.save_service.saves._requests = LossyPost(agent.job_socket, agent.jobs, self.deaf)
        running = asyncio.create_task(agent.run(self.heard, Notifier({})))
        await until(lambda: agent.job_socket.listening, "the agent listens")
        try:
            yield agent
        finally:
            agent.stop()
            await running

    def ask(
        self, save_id: str = "", within_s: float = 60.0, still_s: float = 120.0, restart: int = 0, why: str = ""
    ) -> str:
        """Request that the job saves and pauses, and return the id of the request."""
        save_id = save_id or f"p{next(self._numbers)}.1"
        assert self.agent.request_save(SaveRequest(save_id, JOB, restart, within_s, still_s, why)) == ""
        self._write_asked(self.deaf)
        return save_id

    def train_on(self) -> None:
        """Let the ranks train on without a request."""
        self._write_asked(set(range(99)))

    def _write_asked(self, deaf: set[int]) -> None:
        whole = self.asked.with_suffix(".new")
        whole.write_text(json.dumps(sorted(deaf)))
        whole.replace(self.asked)

    def go_on(self, save_id: str) -> None:
        """Cancel the request, so that the job continues."""
        self.agent.request_go_on(save_id, JOB, 0)

    async def answer(self, save_id: str, count: int = 1) -> SaveAnswer:
        """Return the answer to a request, once it was sent so many times."""

        def found() -> list[SaveAnswer]:
            return [answer for answer in self.heard.answers if answer.id == save_id]

        await until(lambda: len(found()) >= count, f"answer {count} to {save_id}")
        return found()[-1]

    def trainers(self) -> tuple[TrainingProcess, ...]:
        """Return the processes of the job that the agent knows."""
        return self.agent.jobs.training_processes(JOB, 0)

    async def trains(self, started: Started, steps: int) -> None:
        """Wait until each rank has made so many steps, and the agent knows of it."""
        await until(lambda: all(len(losses) >= steps for losses in made(started)), f"{steps} steps")
        ranks = len(started.pids)
        await until(lambda: len(self.trainers()) == ranks, f"{ranks} ranks known to the agent")

    async def stays_paused(self, started: Started, step: int) -> None:
        """Check that every rank has made so many steps, and makes no more."""
        for _ in range(3):
            assert reached(started) == [step] * len(started.pids)
            await asyncio.sleep(0.1)

    async def paused_at(self, started: Started) -> int:
        """Wait until all ranks pause, and return after how many steps."""
        await until(lambda: all("The training pauses" in log for log in started.so_far().logs), "all ranks pause")
        steps = set(reached(started))
        assert len(steps) == 1
        return steps.pop()


def reported_names(started: Started) -> list[set[str]]:
    """Return the names under which each rank has reported anything."""
    return [{name for row in rows for name in row} for rows in started.so_far().rows]


def reached(started: Started) -> list[int]:
    """Return the number of steps that each rank has made so far."""
    return [max(losses, default=-1) + 1 for losses in made(started)]


def made(started: Started) -> list[dict[int, float]]:
    """Return the losses of each rank so far, by step."""
    so_far = started.so_far()
    return [so_far.losses(rank) for rank in range(len(started.pids))]


async def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for a result from another process."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < give_up_s, f"in vain: {what}"
        await asyncio.sleep(0.01)
    return found
