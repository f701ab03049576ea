"""A policy server is swapped, or becomes another one, while it is asked: over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from controller.base.clock import RealClock
from controller.cycle.decision.decider import Decider
from controller.observe.observer import Observer
from controller.state.ledger import Ledger
from policies.api import Outcome, load_policy
from policies.errors import PolicyServerError
from policies.serving.client import PolicyClient
from policies.serving.server import SERVICE, PolicyServer
from policies.wire.messages import encode_spec
from tests.unit.controller.examples.build import job, snapshot

OUTCOME = Outcome("7", "ada", "train", 1.0, 2.0, 3.0, 4, 1, 1.0, "COMPLETED")
STATE = Observer().observe(snapshot(job("1")), Ledger(), frozenset({"dl"})).state
CALLS = {
    "decide": lambda decider: decider.decide(STATE),
    "describe": lambda decider: decider.refresh(),
    "learn": lambda decider: decider.learn([OUTCOME]),
    "rehearse": lambda decider: decider.rehearse(STATE),
}


class Slow:
    """A server that answers no call before it is let go, or only Describe."""

    def __init__(self, *, describes: bool) -> None:
        self.describes = describes
        self.called = asyncio.Event()
        self.let_go = asyncio.Event()

    async def _describe(self, _request: bytes, _context: object) -> bytes:
        if not self.describes:
            return await self._wait(b"", None)
        return encode_spec(load_policy("las").spec).SerializeToString()

    async def _wait(self, _request: object, _context: object) -> bytes:
        self.called.set()
        await self.let_go.wait()
        return b"no message"

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[str]:
        """Its address."""
        server = grpc.aio.server()
        handlers = {
            "Describe": grpc.unary_unary_rpc_method_handler(self._describe),
            "Decide": grpc.unary_unary_rpc_method_handler(self._wait),
            "Learn": grpc.stream_unary_rpc_method_handler(self._wait),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        try:
            yield f"unix://{path}"
        finally:
            await server.stop(0)


@asynccontextmanager
async def serving(policy: str, path: Path) -> AsyncIterator[str]:
    """A real policy server."""
    server = PolicyServer(load_policy(policy), f"unix://{path}")
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop(0)


@pytest.mark.parametrize("call", sorted(CALLS))
async def test_a_swap_during_a_call_ends_nothing_and_the_new_server_decides(call: str, tmp_path: Path) -> None:
    slow = Slow(describes=call != "describe")
    async with slow.serving(tmp_path / "old") as old, serving("srtf", tmp_path / "new") as new:
        decider = Decider(PolicyClient(old), load_policy("fifo"), 30.0, RealClock())
        if slow.describes:
            await decider.refresh()
        under_way = asyncio.ensure_future(CALLS[call](decider))
        await asyncio.wait_for(slow.called.wait(), 30)
        assert (await decider.use(PolicyClient(new), STATE)).name == "srtf"
        assert decider.spec.name == "srtf"
        slow.let_go.set()
        answer = await under_way
        assert decider.spec.name == "srtf"
        assert decider.serving
        if call == "decide":
            assert answer.policy == "fallback:fifo"
        assert (await decider.decide(STATE)).policy == "srtf"
        await decider.close()


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda client: client.describe(30.0), id="describe"),
        pytest.param(lambda client: client.decide(STATE, 30.0), id="decide"),
        pytest.param(lambda client: client.learn([OUTCOME], 30.0), id="learn"),
    ],
)
async def test_a_client_that_is_closed_during_a_call_ends_it_with_an_error_of_ours(
    begin: Callable[[PolicyClient], object], tmp_path: Path
) -> None:
    slow = Slow(describes=False)
    async with slow.serving(tmp_path / "s") as address:
        client = PolicyClient(address)
        call = asyncio.ensure_future(begin(client))
        await asyncio.wait_for(slow.called.wait(), 30)
        await client.close()
        with pytest.raises(PolicyServerError, match="closed"):
            await call
        with pytest.raises(PolicyServerError):
            await begin(client)


async def test_a_call_that_is_cancelled_from_outside_stays_cancelled(tmp_path: Path) -> None:
    slow = Slow(describes=False)
    async with slow.serving(tmp_path / "s") as address, PolicyClient(address) as client:
        call = asyncio.ensure_future(client.describe(30.0))
        await asyncio.wait_for(slow.called.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.describe(30.0)


async def test_the_old_servers_description_does_not_replace_the_new_ones(tmp_path: Path) -> None:
    """Describe of the old server answers after the swap: what it says is not taken for the new one's."""
    let_go = asyncio.Event()

    class Held(PolicyClient):
        async def describe(self, deadline_s: float = 2.0):
            spec = await super().describe(deadline_s)
            await let_go.wait()
            return spec

    async with serving("las", tmp_path / "old") as old, serving("srtf", tmp_path / "new") as new:
        decider = Decider(Held(old), load_policy("fifo"), 30.0, RealClock())
        deciding = asyncio.ensure_future(decider.decide(STATE))
        await asyncio.sleep(0)
        await decider.use(PolicyClient(new), STATE)
        let_go.set()
        assert (await deciding).policy == "las"  # the server that was asked, checked by its own description
        assert decider.spec.name == "srtf"
        await decider.close()
