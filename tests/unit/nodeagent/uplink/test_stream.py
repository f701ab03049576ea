"""The stream of an agent: how it ends, and begins again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.session import Direction, Signer
from nodeagent.uplink.stream import ControllerStream, StreamError, StreamSettings
from policies.serving.runtime.tasks.task_groups import first_of
from protos.headway.v1 import agent_pb2, agent_pb2_grpc


async def test_a_stream_whose_both_directions_fail_ends_with_one_error_and_logs_no_other() -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fail(direction: str) -> None:
        raise StreamError(f"lost while {direction}")

    with pytest.raises(StreamError, match="lost while"):
        await first_of(fail("sending"), fail("receiving"))
    gc.collect()
    assert logged == []


class Controller(agent_pb2_grpc.AgentsServicer):
    """Ends every stream at once: those of the given numbers after a welcome, and the others without one."""

    def __init__(self, welcomed: set[int]) -> None:
        self._welcomed = welcomed
        self._streams = 0

    async def Connect(  # noqa: N802 - the name in agent.proto
        self, requests: AsyncIterator[agent_pb2.AgentMessage], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[agent_pb2.ControllerMessage]:
        self._streams += 1
        if self._streams not in self._welcomed:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "standing by")
        await anext(requests)
        body = agent_pb2.ControllerBody(welcome=agent_pb2.AgentWelcome()).SerializeToString()
        number, mac = Signer(None, Direction.FROM_CONTROLLER).sign(body)
        yield agent_pb2.ControllerMessage(number=number, body=body, mac=mac)


async def test_only_a_stream_with_a_welcome_makes_the_pauses_between_dials_short_again(tmp_path: Path) -> None:
    """A dial without a welcome may take long, too: the controller hangs, or a firewall drops its packets."""
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentsServicer_to_server(Controller(welcomed={5}), server)
    address = f"unix://{tmp_path}/c.sock"
    server.add_insecure_port(address)
    await server.start()
    failures: list[int] = []
    enough = asyncio.Event()

    def hello() -> agent_pb2.AgentHello:
        failures.append(stream._retries.failures)
        if len(failures) == 7:
            enough.set()
        return agent_pb2.AgentHello(node="n1")

    settings = StreamSettings((address,), dial_timeout_s=60.0, steady_s=0.0, first_pause_s=0.001, longest_pause_s=0.01)
    stream = ControllerStream(settings, hello, Outbox(), lambda _: None)
    async with asyncio.timeout(60):
        await first_of(stream.run(), enough.wait())
    await server.stop(None)
    assert failures == [0, 1, 2, 3, 4, 1, 2]
