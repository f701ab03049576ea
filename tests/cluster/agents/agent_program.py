"""A node agent that reports into a file: agent_program SETTINGS REPORTS. Ends on SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from nodeagent.config import load_settings
from nodeagent.daemon import build_agent, stop_signals
from nodeagent.uplink.reporter import FileReporter
from policies.serving.runtime.sdnotify import Notifier


async def main(settings: Path, reports: Path) -> None:
    agent = build_agent(load_settings(settings))
    with stop_signals(agent):
        await agent.run(FileReporter(reports), Notifier())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
