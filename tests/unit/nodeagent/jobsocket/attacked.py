"""An agent as a process of its own, for tests. It prints a line for each report.

Processes of root belong to job 7, those of every other user to job 600 + uid.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from nodeagent.config import AgentSettings
from nodeagent.daemon import NodeAgent, build_agent
from nodeagent.identity.peer import JobProcess, Peer
from nodeagent.saves.coordinator import SaveAnswer, SaveRequest
from nodeagent.wire.report import NodeReport
from policies.serving.runtime.sdnotify import Notifier

_PAGE = resource.getpagesize()


class ByUser:
    """Identifies processes by their users."""

    def identify(self, peer: Peer, pidfd: int) -> JobProcess:
        assert pidfd >= 0
        return JobProcess(peer.pid, peer.uid, peer.pid, 7 if peer.uid == 0 else 600 + peer.uid, "0", "cgroup")


class Printing:
    """A Reporter that prints how the agent is."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._lag_s = 0.0
        self.early = self.answers = 0
        self._saves = 0

    def report(self, report: NodeReport) -> None:
        steps = {row.job_id: row.steps for row in report.jobs}
        state = {
            "steps": steps.get(7),
            "jobs": len(report.jobs),
            "ranks": max((len(row.ranks) for row in report.jobs), default=0),
            "rss_mib": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20,
            "files": len(list(Path("/proc/self/fd").iterdir())),
            "cpu_s": time.process_time(),
            "time_s": time.monotonic(),
            "lag_s": self._lag_s,
            "failed": self._agent.health.failed_cycles + sum(self._agent.tasks.failures.values()),
            "problem": self._agent.health.last_error,
            "early": self.early,
            "answers": self.answers,
            "connections": self._agent.job_socket.counters().connections,
            "reasons": dict(self._agent.job_socket._counters.reasons),
        }
        self._lag_s = 0.0
        print(json.dumps(state), flush=True)
        self._saves += 1
        for row in report.jobs:  # the controller requests saves and profiles of all jobs
            self._agent.request_save(
                SaveRequest(f"{row.job_id}.{self._saves}", row.job_id, row.restart, 0.3, 0.3, "a test")
            )
            self._agent.request_profile(row.job_id, 5)
            self._agent.give_report(row.job_id, row.restart, ["a line"] * 8)

    def report_early(self, report: NodeReport) -> None:
        self.early += len(report.jobs)

    def answer(self, answer: SaveAnswer) -> None:
        self.answers += 1

    async def run(self) -> None:
        """Measure how late the event loop is."""
        while True:
            begun_s = time.monotonic()
            await asyncio.sleep(0.01)
            self._lag_s = max(self._lag_s, time.monotonic() - begun_s - 0.01)


async def main(folder: str) -> None:
    """Run until killed."""
    settings = AgentSettings(
        controller_address="127.0.0.1:1",
        job_socket=Path(folder) / "run" / "job.sock",
        gpus="off",
        report_interval_s=0.5,
        node_name="n1",
    )
    agent = build_agent(settings)
    agent.job_socket._identify = ByUser()
    await agent.run(Printing(agent), Notifier({}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
