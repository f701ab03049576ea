"""An agent of one node with a job that trains, for tests: real sockets, real processes; the controller is the test."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nodeagent.config import AgentSettings
from nodeagent.daemon import Agent, assemble
from nodeagent.report import JobReport, NodeReport
from nodeagent.saves import SaveAnswer, SaveOrder
from policies.sdnotify import Notifier
from tests.unit.nodeagent.checkpoint.conftest import Started
from tests.unit.nodeagent.peers import InJob

JOB = 7
PATIENCE_S = 9.0


class Heard:
    """A Reporter that keeps all it is told."""

    def __init__(self) -> None:
        self.rows: list[JobReport] = []
        """Of the job, by time."""
        self.hasty = 0
        self.answers: list[SaveAnswer] = []

    def report(self, report: NodeReport) -> None:
        self.rows += [row for row in report.jobs if row.job_id == JOB]

    def hasten(self, report: NodeReport) -> None:
        self.hasty += 1
        self.report(report)

    def answer(self, answer: SaveAnswer) -> None:
        self.answers.append(answer)

    async def run(self) -> None:
        await asyncio.Event().wait()


class Node:
    """Agents, one after the other, on one socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "run" / "job.sock"
        self.heard = Heard()
        self._numbers = itertools.count(1)
        self.agent: Agent

    @asynccontextmanager
    async def agent_runs(self) -> AsyncIterator[Agent]:
        """One run of the agent."""
        values: dict[str, Any] = {
            "controller_address": "127.0.0.1:1",
            "job_socket": self.socket,
            "report_interval_s": 300.0,
            "gpus": "off",
            "node_name": "n1",
        }
        self.agent = agent = assemble(AgentSettings(**values))
        agent.job_socket._identify = InJob(JOB)
        running = asyncio.create_task(agent.run(self.heard, Notifier({})))
        await until(lambda: agent.job_socket._door is not None, "the agent listens")
        try:
            yield agent
        finally:
            agent.stop()
            await running

    def ask(self, save_id: str = "", within_s: float = 8.0, still_s: float = 30.0, restart: int = 0) -> str:
        """Has the job save and stand still; the id."""
        save_id = save_id or f"p{next(self._numbers)}.1"
        assert self.agent.request_save(SaveOrder(save_id, JOB, restart, within_s, still_s)) == ""
        return save_id

    def go_on(self, save_id: str) -> None:
        """Has it train on."""
        self.agent.request_go_on(save_id, JOB, 0)

    async def answer(self, save_id: str, count: int = 1) -> SaveAnswer:
        """What came of it, told so many times."""

        def found() -> list[SaveAnswer]:
            return [answer for answer in self.heard.answers if answer.id == save_id]

        await until(lambda: len(found()) >= count, f"answer {count} to {save_id}")
        return found()[-1]

    async def trains(self, started: Started, steps: int = 5) -> None:
        """Until every rank has made so many steps, and the agent knows it can come back."""
        await until(lambda: all(len(losses) >= steps for losses in made(started)), f"{steps} steps")
        ranks = len(started.pids)
        await until(lambda: len(self.agent.jobs.trainers(JOB, 0)) == ranks, f"{ranks} ranks known to the agent")

    async def stands(self, started: Started, step: int) -> None:
        """Every rank has made so many steps, and makes no more."""
        for _ in range(3):
            assert [max(losses) + 1 for losses in made(started)] == [step] * len(started.pids)
            await asyncio.sleep(0.1)


def made(started: Started) -> list[dict[int, float]]:
    """Losses of each rank so far, by step."""
    so_far = started.so_far()
    return [so_far.losses(rank) for rank in range(len(started.pids))]


async def until(true: Callable[[], Any], what: str) -> Any:
    """Waits for what comes from another process."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < give_up_s, f"in vain: {what}"
        await asyncio.sleep(0.01)
    return found
