"""An agent that lies: it has the real agent's place, settings and MUNGE credential, and reports what is not true.

`python liar.py AGENT_TOML SEED EVERY_S` runs on the node whose agent it replaces, until it is killed. It asks squeue which jobs
run, invents steps, checkpoints and ends of those on other nodes, and answers requests that it has not got. It says nothing about
jobs of its own node, because there an agent is believed, as slurmd is; requests to save them it refuses or ignores. Each second it
prints how many lies it has told, and how many of them the controller has acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from nodeagent.config import load_settings
from nodeagent.uplink.endpoint import codec_for_all, parse_endpoint
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from protos.headway.v1 import agent_pb2
from tests.campaign.real.records import expand_nodes
from tests.campaign.world.lies import SeenRun, lie

_SQUEUE = ("squeue", "--noheader", "--array", "--states=RUNNING,COMPLETING", "--format=%A %N")
_ASK_S = 5.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Liar:
    """Invariant: no report is about a job that squeue showed on this node."""

    def __init__(self, node: str, seed: int) -> None:
        self._node = node
        self._chance = random.Random(seed)
        self._elsewhere: list[SeenRun] = []
        self.outbox = Outbox()

    def hello(self) -> agent_pb2.AgentHello:
        """Return the first message of a stream, as an agent without GPUs sends it."""
        boot_time_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return agent_pb2.AgentHello(
            node=self._node, boot_id=_BOOT_ID.read_text().strip(), boot_time_s=boot_time_s, agent_version="1.0.0"
        )

    def on_command(self, command: agent_pb2.AgentCommand) -> None:
        """Refuse a request for a reason that is not true, or ignore it."""
        if self._chance.random() < 0.5:
            why = self._chance.choice(agent_pb2.AnswerReason.values())
            answer = agent_pb2.CommandAnswer(id=command.id, problem="a lie", reason=why)
            self.outbox.put(agent_pb2.AgentReport(time_s=time.time(), answer=answer))

    async def look(self) -> None:
        """Ask which jobs run on other nodes, and print what has been told so far, every second; never returns."""
        while True:
            with suppress(TimeoutError):
                self.see(await _squeue())
            print(f"{self.outbox.last} lies told, {self.outbox.acknowledged} acknowledged", flush=True)
            await asyncio.sleep(1.0)

    def see(self, lines: str) -> None:
        """Take in what squeue printed: the id and the nodes of each job."""
        # A job that is requeued while it is completing has no nodes.
        found = [words for line in lines.splitlines() if len(words := line.split()) == 2]
        runs = [(int(job_id), frozenset(expand_nodes(nodes))) for job_id, nodes in found]
        # A request to save has the number of the preemption, that of its attempt, and the second of its beginning.
        guesses = tuple(
            f"p{number}.{attempt}.{int(time.time()) - ago}"
            for number in (1, 2, 3)
            for attempt in (1, 2)
            for ago in range(4)
        )
        self._elsewhere = [SeenRun(job_id, nodes, guesses) for job_id, nodes in runs if self._node not in nodes]

    def tell(self) -> None:
        """Put a lie into the outbox."""
        self.outbox.put(lie(self._chance, self._node, self._elsewhere, time.time()))


async def _squeue() -> str:
    """Return the jobs that run; empty when Slurm reports none or an error. Raises TimeoutError."""
    process = await asyncio.create_subprocess_exec(
        *_SQUEUE, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_ASK_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return output.decode() if process.returncode == 0 else ""


async def main(config: Path, seed: int, every_s: float) -> None:
    """Lie every `every_s` seconds, until the process is killed."""
    settings = load_settings(config)
    endpoints = [parse_endpoint(address) for address in settings.controller_address]
    codec = codec_for_all(endpoints, settings.munge, settings.munge_socket)
    liar = Liar(settings.node_name, seed)
    stream = ControllerStream(
        StreamSettings(settings.controller_address, controller_uid=settings.controller_uid, ca_file=settings.ca_file),
        liar.hello,
        liar.outbox,
        liar.on_command,
        codec=codec,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.run())
        tasks.create_task(liar.look())
        while True:
            liar.tell()
            await asyncio.sleep(every_s)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
