"""Real sockets: each server gets mutated frames over many connections, and must serve a well-behaved client afterwards."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import grpc
import grpc.aio

from controller.admin.serve import serve_admin
from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.profiles.store import ProfileStore
from nodeagent.jobsocket.rate_limit import Limits
from nodeagent.jobsocket.server import JobSocket
from policies.api import load_policy
from policies.serving.client import PolicyClient
from policies.serving.server import PolicyServer
from protos.headway.v1 import admin_pb2, admin_pb2_grpc, agent_pb2
from tests.fuzz.engine import Fault, Tally
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import agent, agent_stream, policy
from tests.unit.controller.agents.test_server import Agent
from tests.unit.controller.worlds.controller_world import world_in
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, Remembered, until
from tests.unit.nodeagent.wire.packets import packet

Outcomes = Counter[str]
Serve = Callable[[int, Random, Path, Outcomes], Awaitable[None]]
_CALL_S = 60.0
"""Longest time for one answer; a busy machine needs some of it."""
_FRAMES_PER_STREAM = 5
_MOST_GARBAGE = 10
"""Connections that never become HTTP/2: a user may have 16, and each is held for some seconds."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_JOB_FRAMES = [
    packet(kind, seq) for seq, kind in enumerate(("hello", "model", "steps", "profile", "checkpoint", "bye"))
]
_ADMIN_CALLS = {
    "GetStatus": b"",
    "GetQueue": b"",
    "GetUsage": b"",
    "Why": admin_pb2.WhyRequest(job_id="7_1").SerializeToString(),
    "GetPolicy": b"",
    "UsePolicy": admin_pb2.UsePolicyRequest(address="unix:///nowhere/x.sock").SerializeToString(),
    "ListProfiles": admin_pb2.ListProfilesRequest(limit=5).SerializeToString(),
    "GetProfile": admin_pb2.GetProfileRequest(job_id="7", limit=5).SerializeToString(),
    "Preempt": admin_pb2.PreemptRequest(job_id="7").SerializeToString(),
    "ListPreemptions": admin_pb2.ListPreemptionsRequest(limit=5, number=1).SerializeToString(),
}


async def job_socket(frames: int, dice: Random, folder: Path, outcomes: Outcomes) -> None:
    """The agent's socket for jobs: SOCK_SEQPACKET, one frame per packet."""
    listener = Remembered()
    server = JobSocket(folder / "run" / "job.sock", InJob(), listener, Limits(connections_per_user=4096), gather_s=0.0)
    server.open()
    try:
        hostile = Job(server.path)
        for _ in range(frames):
            try:
                hostile.sock.send(mutated(dice, _JOB_FRAMES, "msgpack")[:66_000])
            except OSError:  # the agent has closed it, or is behind
                hostile.close()
                await asyncio.sleep(0.02)  # connections of one user are limited to some tens a second
                hostile = Job(server.path)
            server.read_now()
            await asyncio.sleep(0)
        hostile.close()
        await asyncio.sleep(1.0)
        good = Job(server.path)
        good.say("hello")
        good.say("steps", steps=123)
        heard = listener.frames
        await until(lambda: any(getattr(frame, "steps", 0) == 123 for each in heard.values() for frame in each))
        good.close()
        counters = server.counters()
        outcomes.update({"frames taken": counters.frames, "connections closed for cause": counters.closed_for_cause})
    finally:
        server.close()


async def status_socket(frames: int, dice: Random, folder: Path, outcomes: Outcomes) -> None:
    """The controller's admin.sock and status.sock: gRPC, and bytes that are no HTTP/2."""
    world = world_in(folder)
    world.sbatch(gpus_per_node=8)
    await world.go_on(2)
    async with serve_admin(world, world.folder, ""):
        for path in (folder / "admin.sock", folder / "status.sock"):
            for _ in range(min(frames // 20, _MOST_GARBAGE)):
                await _garbage(path, dice, outcomes)
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                for _ in range(frames // 2):
                    name, request = dice.choice(list(_ADMIN_CALLS.items()))
                    data = mutated(dice, [request or b"\x0a\x01x", *_ADMIN_CALLS.values()], "protobuf")
                    outcomes[await _call(channel, f"/headway.v1.Admin/{name}", data)] += 1
                found = await admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=_CALL_S)
                assert found.nodes_total > 0


async def policy_server(frames: int, dice: Random, folder: Path, outcomes: Outcomes) -> None:
    """A policy server: gRPC, and bytes that are no HTTP/2."""
    path = folder / "policy.sock"
    server = PolicyServer(load_policy("fifo-skip"), f"unix://{path}")
    await server.start()
    try:
        states = policy.states()
        for _ in range(frames // 20):
            await _garbage(path, dice, outcomes)
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            for _ in range(frames):
                outcomes[await _call(channel, "/headway.v1.Policy/Decide", mutated(dice, states, "protobuf"))] += 1
        async with PolicyClient(f"unix://{path}") as client:
            assert await client.decide(policy._STATE, _CALL_S)
    finally:
        await server.stop(0.5)


async def agents_server(frames: int, dice: Random, folder: Path, outcomes: Outcomes) -> None:
    """The controller's service for agents: streams of gRPC."""
    address = f"unix://{folder}/a.sock"
    bodies = agent_stream.bodies()
    with closing(ProfileStore(folder / "state" / "profiles.sqlite")) as store:
        server = AgentsServer(AgentsSettings(address, beat_s=0.1, silence_s=30.0), store, None)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"unix:{folder}/a.sock") as channel:
                for _ in range(frames // _FRAMES_PER_STREAM):
                    outcomes[await _stream(channel, dice, bodies)] += 1
            async with Agent(address, node="n9").running() as good:
                good.put()
                await good.connected()
                await good.emptied()
        finally:
            await server.stop()


async def wake_pipe(frames: int, dice: Random, folder: Path, outcomes: Outcomes) -> None:
    """The wake pipes, which job_submit.lua and hooks write into."""
    pipe = WakePipe(folder / "wake")
    try:
        lines = [b"submit 7\nstart 8\n", b"end 7 COMPLETED\n", b"user-hold 7\nuser-release 7\n"]
        with (folder / "wake").open("wb", buffering=0) as writer:
            for _ in range(frames):
                writer.write(mutated(dice, lines, "text")[: max(1, pipe.room_bytes // 2)])
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            outcomes["lines"] += sum(vars_of(pipe.take()))
            writer.write(b"\nsubmit 7\n")
        await pipe.wait(_CALL_S, lambda woken: woken.submitted > 0)
        assert pipe.take().submitted >= 1
    finally:
        pipe.close()


def vars_of(woken: object) -> list[int]:
    """Return the counts of a Woken."""
    return [getattr(woken, name) for name in ("submitted", "started", "ended", "user_holds")]


SERVERS: dict[str, Serve] = {
    "server-jobs": job_socket,
    "server-status": status_socket,
    "server-policy": policy_server,
    "server-agents": agents_server,
    "server-wake": wake_pipe,
}
"""Name -> server."""


def run_server(name: str, frames: int, seed: int) -> Tally:
    """Send a number of frames to one server."""
    tally, started_s = Tally(name), time.process_time()
    with TemporaryDirectory(prefix="hw-") as folder:
        try:
            asyncio.run(SERVERS[name](frames, Random(f"{name} {seed}"), Path(folder), tally.outcomes))
        except Exception as error:  # noqa: BLE001 - every exception is a fault
            tally.count(Fault(name, 0, "crash", f"{type(error).__name__}: {str(error)[:300]}", b""))
    tally.runs, tally.cpu_s = frames, time.process_time() - started_s
    return tally


async def _call(channel: grpc.aio.Channel, method: str, data: bytes) -> str:
    """Make one call with these bytes. Returns the status."""
    call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
    try:
        await call(data, timeout=_CALL_S)
    except grpc.aio.AioRpcError as error:
        code: str = error.code().name
        # UNKNOWN would be an error of the server; gRPC itself answers INTERNAL to a request that is not a message.
        assert code not in {"UNKNOWN", "DEADLINE_EXCEEDED"}, f"{method}: {code}: {error.details()}"
        return code
    return "OK"


async def _stream(channel: grpc.aio.Channel, dice: Random, bodies: list[bytes]) -> str:
    """Open a stream as an agent does, with mutated messages after or in place of its hello. Returns the status."""
    call = channel.stream_stream("/headway.v1.Agents/Connect", request_serializer=None, response_deserializer=None)()
    genuine = dice.random() < 0.8
    try:
        async with asyncio.timeout(_CALL_S):
            for number in range(_FRAMES_PER_STREAM):
                body = bodies[0] if genuine and number == 0 else mutated(dice, bodies, "protobuf")
                data = agent_pb2.AgentMessage(number=number, body=body).SerializeToString()
                await call.write(data if dice.random() < 0.9 else mutated(dice, [data], "protobuf"))
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
            return str((await call.code()).name)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return str((await call.code()).name)
    finally:
        call.cancel()


async def _garbage(path: Path, dice: Random, outcomes: Outcomes) -> None:
    """Write bytes that are not HTTP/2, and close the connection."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, str(path))
        raw.send(mutated(dice, [_PREFACE, *agent.from_agent()], "bytes")[:60_000])
        outcomes["no HTTP/2"] += 1
