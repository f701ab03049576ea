"""Both clients behind one interface, so that each test runs with both."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from headway_client import AsyncClient, Client, Event

from tests.unit.controller.worlds.patience import patience

__all__ = ["patience"]


class Both:
    """Either client: methods are awaited; the one that waits does so in a thread."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)
        if isinstance(self.client, AsyncClient):
            return method  # type: ignore[no-any-return]
        return lambda *given, **named: asyncio.to_thread(method, *given, **named)

    async def listen(self, **more: Any) -> Callable[[], Any]:
        """A function to be awaited for the next event, None at the end; it listens already."""
        if isinstance(self.client, AsyncClient):
            stream = self.client.events(**more)
            await stream.open()

            async def following() -> Event | None:
                return await anext(stream, None)

            return following
        events = await asyncio.to_thread(self.client.events, **more)
        return lambda: asyncio.to_thread(next, events, None)


MakeClient = Callable[..., AbstractAsyncContextManager[Both]]


@pytest.fixture(params=["sync", "aio"])
def connected(request: pytest.FixtureRequest) -> MakeClient:
    """Make a client, with the arguments of its class."""

    @asynccontextmanager
    async def make(*given: Any, **named: Any) -> AsyncIterator[Both]:
        if request.param == "aio":
            async with AsyncClient(*given, **named) as client:
                yield Both(client)
        else:
            with Client(*given, **named) as waiting:
                yield Both(waiting)

    return make


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it, and open to other users, as /run/headway is."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o755)
        yield Path(path)
