"""Runs the preemption manager beside the controller's cycles: it receives the agents' reports, and watches its deadlines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.agents.server import AgentsServer
from controller.preempt.manager import PreemptionManager
from policies.serving.runtime.tasks.supervise import Tasks


@asynccontextmanager
async def run_preemptions(
    preemptions: PreemptionManager, agents: AgentsServer | None, tasks: Tasks | None = None
) -> AsyncIterator[None]:
    """Run the preemption manager within the context; without agents only jobs that requeue themselves can be preempted."""
    preemptions.serve(agents)
    if agents is not None:
        agents.listeners.append(preemptions.on_report)
        agents.on_connect.append(preemptions.on_connected)
    try:
        async with (tasks or Tasks()).running("preemptions", preemptions.run):
            yield
    finally:
        if agents is not None:
            agents.listeners.remove(preemptions.on_report)
            agents.on_connect.remove(preemptions.on_connected)
        preemptions.serve(None)
