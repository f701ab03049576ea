"""A scripted run of the whole controller beside an agent, policy servers and an operator, in real time, with one await cut.

`controller_run` has the cycles; here are the services around them, over gRPC.
"""

from __future__ import annotations

import asyncio
import contextvars
import getpass
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc.aio

from controller.base.lease import read_lease
from controller.daemon.assemble import run_controller
from controller.slurm.client import SlurmFacts
from controller.slurm.embedded import EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.embedded.client import EmbeddedClient
from controller.slurm.model.shares import Shares
from controller.state.preemption import Stage
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.stream import ControllerStream, StreamSettings
from policies.api import load_policy
from policies.serving.server import PolicyServer
from protos.headway.v1 import admin_pb2, admin_pb2_grpc, agent_pb2
from tests.cancellation.calls import ANSWER_S, Calls
from tests.cancellation.points import Cut, Outcome, Point
from tests.cancellation.program import Program, play

TASKS = {
    "agents-connections", "agents-present", "agents-store", "agents-windows", "contention", "learn", "lease", "preemptions",
    "profiles", "threshold",
}  # fmt: skip
_USER = getpass.getuser()
"""Submits the job, and calls status.sock."""


def _start_outside(slurm: EmbeddedSlurm) -> None:
    """Start the emulated Slurm with a job: no part of the program under test, but ended with it."""
    slurm.submit(Submission(request=sbatch_request(gpus_per_node=1, nodes=1), duration_s=1000.0, user=_USER))
    slurm._runner = asyncio.get_running_loop().create_task(
        slurm.run(), name="embedded-slurm", context=contextvars.Context()
    )


_SENDS = ("AdminService.WatchEvents", " refuse")
"""Functions in which gRPC itself sends something: when that is cut off half-way, gRPC cannot send an error to the caller either."""
_facts = EmbeddedClient.facts


async def _private_facts(client: EmbeddedClient) -> SlurmFacts:
    """Return the settings of a cluster that keeps jobs private: each call looks up its caller first."""
    facts = await _facts(client)
    return replace(facts, settings={**facts.settings, "PrivateData": "jobs,usage"})


async def _topology(_client: EmbeddedClient) -> str:
    """Return a tree of switches, as slurmctld answers: after a moment."""
    await asyncio.sleep(0)
    return "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"


async def _shares(_client: EmbeddedClient, *, associations: bool = False) -> Shares:
    """Return no shares, as slurmctld answers: after a moment."""
    await asyncio.sleep(0)
    return Shares()


_QUICK = {
    "controller.slurm.embedded.client.EmbeddedClient.topology": _topology,
    "controller.slurm.embedded.client.EmbeddedClient.shares": _shares,
    "controller.slurm.embedded.client.EmbeddedClient.facts": _private_facts,
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
    sends = at is not None and at.where.endswith(_SENDS)
    return play(partial(_script, all_answered=cut is not Cut.ENDED and not sends), TASKS, at, cut, _QUICK)


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
        self.calls = Calls(folder)

    async def start(self) -> None:
        """Start what is around the controller."""
        for server in self._servers:
            await server.start()
        settings = StreamSettings((self._agents,), first_pause_s=0.05, longest_pause_s=0.2, beat_s=0.3)
        stream = ControllerStream(
            settings,
            lambda: agent_pb2.AgentHello(node="n1", boot_id="boot", agent_version="1"),
            self._outbox,
            self._answer,
        )
        self._work = [asyncio.create_task(stream.run()), asyncio.create_task(self._report())]

    def _answer(self, command: agent_pb2.AgentCommand) -> None:
        """Answer as an agent does whose job takes requests for a profile, and cannot save."""
        can = command.WhichOneof("what") == "profile"
        answer = agent_pb2.CommandAnswer(id=command.id, accepted=can, problem="" if can else "nothing to save")
        self._outbox.put(agent_pb2.AgentReport(time_s=time.time(), answer=answer))

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
                admin_pb2.GetStatusRequest(), timeout=ANSWER_S
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
            await admin_pb2_grpc.AdminStub(channel).UsePolicy(request, timeout=ANSWER_S)
        return True

    async def job_runs(self) -> str:
        """Return the id of the job, once it runs; empty before."""
        async with grpc.aio.insecure_channel(f"unix:{self._folder}/status.sock") as channel:
            queue = await admin_pb2_grpc.AdminStub(channel).GetQueue(admin_pb2.GetQueueRequest(), timeout=ANSWER_S)
        return next((job.job_id for job in queue.entries if job.state == "running"), "")

    async def can_be_profiled(self) -> bool:
        """Return whether a profile of the job is granted to an operator, and to its user: only while its agent is connected."""
        for name in ("admin", "status"):
            async with grpc.aio.insecure_channel(f"unix:{self._folder}/{name}.sock") as channel:
                request = admin_pb2.RequestProfileRequest(job_id="1", steps=5)
                await admin_pb2_grpc.AdminStub(channel).RequestProfile(request, timeout=ANSWER_S)
        return True

    async def no_preemption_is_open(self) -> bool:
        """Return whether none waits for a checkpoint: the job that cannot save has been requeued, or left where it is."""
        async with grpc.aio.insecure_channel(f"unix:{self._folder}/admin.sock") as channel:
            request = admin_pb2.ListPreemptionsRequest()
            found = await admin_pb2_grpc.AdminStub(channel).ListPreemptions(request, timeout=ANSWER_S)
        return not any(row.stage in {Stage.ASKED, Stage.SAVED} for row in found.preemptions)

    def has_looked(self) -> Callable[[], Awaitable[bool]]:
        """Return a check whether there was a cycle since its first call."""
        before: list[float] = []

        async def check() -> bool:
            before.append((await self.status()).snapshot_time_s)
            return before[0] < before[-1]

        return check

    async def every_call_is_answered(self) -> bool:
        """Return whether all calls of users and operators are answered, or refused for a reason."""
        job_id = await self.job_runs()
        return bool(job_id) and not await self.calls.all(job_id)

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


async def _script(program: Program, folder: Path, *, all_answered: bool) -> None:
    """The services answer; the policy is swapped, settings are read again, events are watched; then the controller is stopped."""
    world = _World(folder)
    await world.start()
    program.start(world.run_controller)
    await program.until("it is well", world.is_well())
    await program.until("the job runs", world.job_runs)
    await program.until("the job can be profiled", world.can_be_profiled)
    await world.watch()
    await world.calls.all("1")
    await program.until("the policy is swapped", lambda: world.use("two"))
    await program.until("the preemption is over", world.no_preemption_is_open)
    world.sighup()
    await program.until("there is a cycle with the new settings", world.has_looked())
    program.script_is_over()
    await asyncio.sleep(0.2)
    await program.until_tasks_are_alive()
    await program.until("it is well", world.is_well())
    await program.until("the policy is swapped", lambda: world.use("one"))
    await program.until("every call is answered", world.every_call_is_answered)
    await program.stop(world.sigterm)
    if all_answered:  # a call whose own task is cancelled is one whose caller has gone, as far as the server knows
        program.outcome.violations += [f"the call {name} was not answered" for name in world.calls.unanswered]
    await world.end()
