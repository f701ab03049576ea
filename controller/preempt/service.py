"""Preemptions beside the controller's cycles: agents tell them what they report, and deadlines are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.agents.server import AgentsServer
from controller.preempt.manager import Preempting
from policies.serving.runtime.supervise import Tasks


@asynccontextmanager
async def drive_preemptions(
    preempting: Preempting, agents: AgentsServer | None, tasks: Tasks | None = None
) -> AsyncIterator[None]:
    """Within, agents are asked and deadlines kept; without agents only jobs that requeue themselves can be preempted."""
    preempting.serve(agents)
    if agents is not None:
        agents.listeners.append(preempting.on_report)
        agents.greeters.append(preempting.on_connected)
    try:
        async with (tasks or Tasks()).running("preemptions", preempting.drive):
            yield
    finally:
        if agents is not None:
            agents.listeners.remove(preempting.on_report)
            agents.greeters.remove(preempting.on_connected)
        preempting.serve(None)
