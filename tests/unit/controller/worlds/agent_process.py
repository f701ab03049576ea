"""A controller's end and an agent's end as processes of their own, for tests: `server` and `agent`.

Both write how they are into a JSON file, over and over.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.profiles.store import ProfileStore
from nodeagent.uplink.munge import Munge
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from protos.headway.v1 import agent_pb2


def say(path: str, state: dict[str, Any]) -> None:
    fresh = Path(f"{path}.new")
    fresh.write_text(json.dumps(state))
    fresh.replace(path)


async def server(state_file: str, folder: str, munge: str, silence_s: str) -> None:
    store = ProfileStore(Path(folder) / "profiles.sqlite")
    settings = AgentsSettings("127.0.0.1:0", beat_s=0.2, silence_s=float(silence_s), hello_timeout_s=5.0)
    serving = AgentsServer(settings, store, Munge(Path(munge)))
    await serving.start()
    while True:
        nodes = {name: [status.connected, status.streams, status.dropped] for name, status in serving.nodes.items()}
        say(state_file, {"address": serving.address, "nodes": nodes})
        await asyncio.sleep(0.05)


def report(number: int, uid: int, keep: bool) -> agent_pb2.AgentReport:
    """Report `number` of that agent (its uid): a profile to be kept, or telemetry."""
    if not keep:
        return agent_pb2.AgentReport(time_s=time.time(), telemetry=agent_pb2.NodeTelemetry())
    job = agent_pb2.JobName(job_id=number, uid=uid)
    return agent_pb2.AgentReport(
        time_s=time.time(), profile=agent_pb2.JobProfile(job=job, steps=20, step_s=1.0, compute_s=1.0)
    )


async def agent(
    state_file: str, address: str, munge: str, silence_s: str, uid: str, reports: str, keep_every: str = "1",
    limit: str = "8000000", pause_at: str = "-1",
) -> None:  # fmt: skip
    """Makes so many reports at 500/s, of which every `keep_every`th is a profile; ends on request.

    It makes no more than `pause_at` of them until it gets SIGUSR1.
    """
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    outbox = Outbox(int(limit))
    settings = StreamSettings(
        (address,), beat_s=0.2, silence_s=float(silence_s), dial_timeout_s=2.0, first_pause_s=0.05, longest_pause_s=0.3,
        steady_s=1.0,
    )  # fmt: skip
    commands: list[str] = []
    link = ControllerStream(
        settings,
        lambda: agent_pb2.AgentHello(node="n1", boot_id="boot", agent_version="1"),
        outbox,
        lambda command: commands.append(command.id),
        codec=Munge(Path(munge)),
        rng=random.Random(int(uid)),
    )
    running = asyncio.create_task(link.run())
    number = 0
    while not running.done():
        for _ in range(25):
            if number < int(reports) and (number != int(pause_at) or go_on.is_set()):
                number += 1
                keep = number % int(keep_every) == 0
                outbox.put(report(number, int(uid), keep), keep=keep)
        state = {
            "made": number, "pending": len(outbox), "acknowledged": outbox.acknowledged, "dropped": outbox.dropped,
            "streams": link.status.streams, "run_id": outbox.run_id, "error": link.status.last_error,
        }  # fmt: skip
        say(state_file, state)
        await asyncio.sleep(0.05)
    await running


if __name__ == "__main__":
    asyncio.run({"server": server, "agent": agent}[sys.argv[1]](*sys.argv[2:]))
