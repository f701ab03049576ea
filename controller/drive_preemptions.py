"""Preemptions beside the controller's cycles: agents tell them what they report, and deadlines are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.agents import AgentsServer
from controller.preempting import Preempting


@asynccontextmanager
async def drive_preemptions(preempting: Preempting, agents: AgentsServer | None) -> AsyncIterator[None]:
    """Within, agents are asked and deadlines kept; without agents only jobs that requeue themselves can be preempted."""
    preempting.serve(agents)
    if agents is not None:
        agents.listeners.append(preempting.on_report)
        agents.greeters.append(preempting.on_connected)
    task = asyncio.create_task(preempting.drive(), name="preemptions")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if agents is not None:
            agents.listeners.remove(preempting.on_report)
            agents.greeters.remove(preempting.on_connected)
        preempting.serve(None)
