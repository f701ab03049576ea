"""A scripted run of the whole controller beside an agent, policy servers and an operator, in real time, with one await cut.

`controller_run` has the cycles; here are the services around them, over gRPC.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio

from controller.base.lease import read_lease
from controller.daemon.assemble import run_controller
from controller.slurm.embedded.cluster import EmbeddedSlurm
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from policies.api import load_policy
from policies.serving.server import PolicyServer
from protos.headway.v1 import admin_pb2, admin_pb2_grpc, agent_pb2
from tests.cancellation.controller_run import Outcome
from tests.cancellation.points import Cut, Point
from tests.cancellation.program import Program, play

TASKS = {
    "agents-connections", "agents-present", "agents-store", "agents-windows", "contention", "learn", "lease", "preemptions",
    "threshold",
}  # fmt: skip


_ANSWER_S = 20.0
"""Time for one answer, seconds."""


def _start_outside(slurm: EmbeddedSlurm) -> None:
    """Start the emulated Slurm: no part of the program under test, but ended with it."""
    slurm._runner = asyncio.get_running_loop().create_task(
        slurm.run(), name="embedded-slurm", context=contextvars.Context()
    )


_QUICK = {
    "policies.serving.runtime.tasks.supervise.FIRST_PAUSE_S": 0.05,
    "controller.agents.reports.storage._COMPUTE_EVERY_S": 0.3,
    "controller.agents.service._PRESENT_EVERY_S": 0.3,
    "controller.agents.server._CALM_FILES": 0,
    "controller.contention.measurement._UPDATE_EVERY_S": 0.3,
    "controller.slurm.embedded.cluster.EmbeddedSlurm.start": _start_outside,
    "controller.daemon.assemble.set_up_logging": lambda _level, _form: None,
}


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Run the script, and cut that await of the controller."""
    return play(_script, TASKS, at, cut, _QUICK)


class _World:
    """The controller's surroundings: an agent's end, two policy servers, and an operator."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = folder / "controller.toml"
        self._lease = folder / "lease"
        # Loopback has many addresses: nothing else takes a free port of this one between two starts of the controller.
        address = f"127.77.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
        with socket.socket() as probe:
            probe.bind((address, 0))
            self._agents = f"{address}:{probe.getsockname()[1]}"
        self._config.write_text(
            f'partitions = ["dl"]\nslurm_client = "embedded"\nruntime_dir = "{folder}"\nstate_dir = "{folder}/state"\n'
            f'policy_address = "unix://{folder}/one.sock"\nmetrics_address = ""\nagents_address = "{self._agents}"\n'
            'agents_munge = "off"\nagents_report_interval_s = 0.5\nagents_window_s = 5.0\npoll_interval_s = 1.0\n'
            "heartbeat_interval_s = 0.2\n"
        )
        self._outbox = Outbox()
        self._servers = [PolicyServer(load_policy("fifo"), f"unix://{folder}/{name}.sock") for name in ("one", "two")]
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start what is around the controller."""
        for server in self._servers:
            await server.start()
        settings = StreamSettings((self._agents,), first_pause_s=0.05, longest_pause_s=0.2, beat_s=0.3)
        stream = ControllerStream(
            settings,
            lambda: agent_pb2.AgentHello(node="n1", boot_id="boot", agent_version="1"),
            self._outbox,
            lambda _command: None,
        )
        self._work = [asyncio.create_task(stream.run()), asyncio.create_task(self._report())]

    async def _report(self) -> None:
        while True:
            self._outbox.put(agent_pb2.AgentReport(time_s=time.time(), telemetry=agent_pb2.NodeTelemetry()))
            await asyncio.sleep(0.1)

    async def end(self) -> None:
        """End it."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for server in self._servers:
            await server.stop(0.2)
        slurms = [task for task in asyncio.all_tasks() if task.get_name() == "embedded-slurm"]
        for slurm in slurms:
            slurm.cancel()
        await asyncio.gather(*slurms, return_exceptions=True)

    async def run_controller(self) -> None:
        """As `headway-controller run` does."""
        await run_controller(self._config)

    def sigterm(self) -> None:
        """Stop the controller, without a signal that could end the tests."""
        asyncio.get_running_loop()._signal_handlers[signal.SIGTERM]._run()  # type: ignore[attr-defined]

    def sighup(self) -> None:
        """Have the controller read its settings again."""
        handler = asyncio.get_running_loop()._signal_handlers.get(signal.SIGHUP)  # type: ignore[attr-defined]
        if handler is not None:
            handler._run()

    async def status(self) -> admin_pb2.Status:
        """Return what any user sees."""
        async with grpc.aio.insecure_channel(f"unix:{self._folder}/status.sock") as channel:
            status: admin_pb2.Status = await admin_pb2_grpc.AdminStub(channel).GetStatus(
                admin_pb2.GetStatusRequest(), timeout=_ANSWER_S
            )
            return status

    def is_well(self) -> Callable[[], Awaitable[bool]]:
        """Return a check whether, since its first call, there was a cycle, the lease was renewed and reports were stored, and the
        policy serves. It depends on no time, because the machine may be busy."""
        before: list[tuple[float, float, int]] = []

        async def check() -> bool:
            status, lease = await self.status(), read_lease(self._lease)
            now = (status.snapshot_time_s, 0.0 if lease is None else lease.time_s, self._outbox.acknowledged)
            before.append(now)
            return status.policy.serving and all(old < new for old, new in zip(before[0], now, strict=True))

        return check

    async def use(self, name: str) -> bool:
        """`headway policy use`."""
        async with grpc.aio.insecure_channel(f"unix:{self._folder}/admin.sock") as channel:
            request = admin_pb2.UsePolicyRequest(address=f"unix://{self._folder}/{name}.sock")
            await admin_pb2_grpc.AdminStub(channel).UsePolicy(request, timeout=_ANSWER_S)
        return True

    async def watch(self) -> None:
        """`headway events --follow`, for a moment, and `headway queue`."""
        async with grpc.aio.insecure_channel(f"unix:{self._folder}/status.sock") as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            call = stub.WatchEvents(admin_pb2.WatchEventsRequest())
            try:
                async with asyncio.timeout(0.3):
                    await call.read()
                    await stub.GetQueue(admin_pb2.GetQueueRequest())
            except (TimeoutError, grpc.aio.AioRpcError):
                pass
            finally:
                call.cancel()


async def _script(program: Program, folder: Path) -> None:
    """The services answer; the policy is swapped, settings are read again, events are watched; then the controller is stopped."""
    world = _World(folder)
    await world.start()
    program.start(world.run_controller)
    await program.until("it is well", world.is_well())
    await world.watch()
    await program.until("the policy is swapped", lambda: world.use("two"))
    world.sighup()
    await asyncio.sleep(0.8)
    program.script_is_over()
    await asyncio.sleep(0.2)
    await program.until_tasks_are_alive()
    await program.until("it is well", world.is_well())
    await program.until("the policy is swapped", lambda: world.use("one"))
    await program.stop(world.sigterm)
    await world.end()
